// The C interface of libtandem_cuda.so where device memory is the host's and a stream is always done: the kernels' own
// sources, run by plain loops. So what is built on the interface is tested without a GPU.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cuda/all_operations.cuh"
#include "kernels/cuda/operations.h"

struct TandemCudaStreamState {
  bool stuck;  // never done: what a GPU does while a kernel of NCCL waits for a peer that is gone
};

struct TandemCudaEventState {};

namespace {

namespace cuda = tandem::kernels::cuda;

struct Loops {
  template <typename Kernel>
  int run(const Kernel& kernel, int64_t blocks) const {
    const auto shared = std::make_unique<typename Kernel::Shared>();
    constexpr int kWorkers = cuda::workers_of<Kernel>();
    std::vector<typename Kernel::Private> own(kWorkers);
    for (int64_t block = 0; block < blocks; ++block) {
      bool more = true;
      for (int phase = 0; more; ++phase) {
        for (int worker = 0; worker < kWorkers; ++worker) more = kernel.run(block, phase, worker, *shared, own[worker]);
      }
    }
    return 0;
  }
  static bool tensor() { return false; }
};

}  // namespace

extern "C" {

#define TANDEM_CUDA_DEFINE(operation, Arguments)                                      \
  int tandem_cuda_##operation(TandemCudaStream, const TandemCuda##Arguments* given) { \
    Loops loops;                                                                      \
    return cuda::operate(loops, *given);                                              \
  }
TANDEM_CUDA_OPERATIONS(TANDEM_CUDA_DEFINE)
#undef TANDEM_CUDA_DEFINE

// Nobody asks for workspaces here.
size_t tandem_cuda_rms_norm_backward_workspace(int, int) { return 0; }
size_t tandem_cuda_head_norm_backward_workspace(int, int, int) { return 0; }
size_t tandem_cuda_sum_rows_workspace(int, int) { return 0; }
size_t tandem_cuda_attention_backward_workspace(int, int) { return 0; }
size_t tandem_cuda_layer_norm_backward_workspace(int, int) { return 0; }
size_t tandem_cuda_lm_head_workspace(int, int) { return 0; }
size_t tandem_cuda_lm_head_backward_workspace(int, int) { return 0; }
size_t tandem_cuda_sample_workspace(int, int) { return 0; }
size_t tandem_cuda_muon_workspace(int, int) { return 0; }
size_t tandem_cuda_sum_of_squares_workspace(int64_t) { return 0; }
size_t tandem_cuda_digest_workspace(int64_t) { return 0; }

const char* tandem_cuda_error_text(int) { return "a code of the host"; }
int tandem_cuda_version(void) { return TANDEM_CUDA_VERSION; }
int tandem_cuda_device_count(int* count) {
  *count = 1;
  return 0;
}
int tandem_cuda_device(int, TandemCudaDevice* device) {
  *device = {"host", 9, 0, 0};
  return 0;
}
int tandem_cuda_stream_create(int device, int /*kernels*/, TandemCudaStream* stream) {
  *stream = new TandemCudaStreamState{device != 0};
  return 0;
}
int tandem_cuda_stream_destroy(TandemCudaStream stream) {
  delete stream;
  return 0;
}
int tandem_cuda_synchronize(TandemCudaStream) { return 0; }
int tandem_cuda_done(TandemCudaStream stream, int* done) {
  *done = !stream->stuck;
  return 0;
}
int tandem_cuda_event_create(TandemCudaStream, TandemCudaEvent* event) {
  *event = new TandemCudaEventState;
  return 0;
}
int tandem_cuda_event_destroy(TandemCudaEvent event) {
  delete event;
  return 0;
}
int tandem_cuda_event_record(TandemCudaStream, TandemCudaEvent) { return 0; }
int tandem_cuda_event_done(TandemCudaEvent, int* done) {
  *done = 1;
  return 0;
}
int tandem_cuda_stream_wait(TandemCudaStream, TandemCudaEvent) { return 0; }
// And nobody for graphs.
int tandem_cuda_capture_begin(TandemCudaStream) { return kTandemCudaRuntime; }
int tandem_cuda_capture_end(TandemCudaStream, TandemCudaGraph*) { return kTandemCudaRuntime; }
int tandem_cuda_graph_launch(TandemCudaStream, TandemCudaGraph) { return kTandemCudaRuntime; }
int tandem_cuda_graph_destroy(TandemCudaGraph) { return kTandemCudaRuntime; }
void* tandem_cuda_raw_stream(TandemCudaStream stream) { return stream; }
int tandem_cuda_allocate(TandemCudaStream, size_t bytes, void** memory) {
  *memory = std::malloc(bytes);
  return *memory ? 0 : kTandemCudaRuntime + 2;
}
int tandem_cuda_free(TandemCudaStream, void* memory) {
  std::free(memory);
  return 0;
}
int tandem_cuda_copy_to_device(TandemCudaStream, void* device, const void* host, size_t bytes) {
  std::memcpy(device, host, bytes);
  return 0;
}
int tandem_cuda_copy_on_device(TandemCudaStream, void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
  return 0;
}
int tandem_cuda_allocate_host(TandemCudaStream stream, size_t bytes, void** memory) {
  return tandem_cuda_allocate(stream, bytes, memory);
}
int tandem_cuda_free_host(TandemCudaStream stream, void* memory) { return tandem_cuda_free(stream, memory); }
int tandem_cuda_memory(TandemCudaStream, size_t* free, size_t* all) {
  *free = *all = size_t{1} << 30;
  return 0;
}
int tandem_cuda_copy_to_host(TandemCudaStream, void* host, const void* device, size_t bytes) {
  std::memcpy(host, device, bytes);
  return 0;
}

}  // extern "C"
