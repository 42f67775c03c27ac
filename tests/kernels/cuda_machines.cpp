#include "tests/kernels/cuda_machines.h"

#include "kernels/cuda/all_operations.cuh"

namespace tandem::kernels::cuda {

#define TANDEM_CUDA_RUN(operation, Arguments) \
  int HostMachine::run(const TandemCuda##Arguments& arguments) { return operate(execution_, arguments); }
TANDEM_CUDA_OPERATIONS(TANDEM_CUDA_RUN)
#undef TANDEM_CUDA_RUN

void* HostMachine::put_bytes(const void* values, size_t bytes) {
  std::vector<char>& copy = memory_.emplace_back(bytes + 1);  // one more, so that an empty array has an address too
  if (bytes > 0) std::memcpy(copy.data(), values, bytes);
  return copy.data();
}

void HostMachine::get_bytes(const void* from, void* to, size_t bytes) { std::memcpy(to, from, bytes); }

Result<std::unique_ptr<DeviceMachine>> DeviceMachine::find(bool tensor) {
  Library library = TRY(Library::load());
  const std::vector<Device> devices = TRY(library.devices());
  if (devices.empty() || !devices[0].supported()) return fail(Status::unfit("no GPU that the library has code for"));
  TandemCudaStream stream = nullptr;
  TRY(library.status("tandem_cuda_stream_create",
                     library.functions().stream_create(0, tensor ? kTandemCudaTensor : kTandemCudaExact, &stream)));
  return std::unique_ptr<DeviceMachine>(new DeviceMachine(std::move(library), stream));
}

DeviceMachine::~DeviceMachine() {
  for (void* memory : memory_) library_.functions().free(stream_, memory);
  library_.functions().stream_destroy(stream_);
}

#define TANDEM_CUDA_RUN(operation, Arguments)                      \
  int DeviceMachine::run(const TandemCuda##Arguments& arguments) { \
    return library_.functions().operation(stream_, &arguments);    \
  }
TANDEM_CUDA_OPERATIONS(TANDEM_CUDA_RUN)
#undef TANDEM_CUDA_RUN

void* DeviceMachine::put_bytes(const void* values, size_t bytes) {
  void* memory = nullptr;
  EXPECT_EQ(library_.functions().allocate(stream_, bytes + 1, &memory), 0);
  memory_.push_back(memory);
  EXPECT_EQ(library_.functions().copy_to_device(stream_, memory, values, bytes), 0);
  EXPECT_EQ(library_.functions().synchronize(stream_), 0);
  return memory;
}

void DeviceMachine::get_bytes(const void* from, void* to, size_t bytes) {
  EXPECT_EQ(library_.functions().copy_to_host(stream_, to, from, bytes), 0);
  EXPECT_EQ(library_.functions().synchronize(stream_), 0);
}

}  // namespace tandem::kernels::cuda
