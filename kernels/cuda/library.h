// libtandem_cuda.so, found and loaded while the process runs, so that one binary serves machines with and without GPUs.
//
// Loading needs no GPU and no driver: a machine without them has a library that lists no devices.
//
// Thread safety: a Library is immutable once loaded. Functions: see tandem_cuda.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernels/cuda/operations.h"

namespace tandem::kernels::cuda {

struct Device {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  uint64_t memory_bytes = 0;

  // Whether the library holds code for it: 9.0 and 10.0.
  bool supported() const { return (major == 9 || major == 10) && minor == 0; }
  // The part of a `numerics_id` that says how its tensor cores add up.
  const char* tensor_cores() const { return major == 9 ? "hopper" : "blackwell"; }
};

// Every function of the interface, under its name without tandem_cuda_.
struct Functions {
#define TANDEM_CUDA_MEMBER(name) decltype(&tandem_cuda_##name) name = nullptr;
#define TANDEM_CUDA_OPERATION_MEMBER(name, Arguments) TANDEM_CUDA_MEMBER(name)
#define TANDEM_CUDA_SERVICES(X) \
  X(error_text)                 \
  X(version)                    \
  X(device_count)               \
  X(device)                     \
  X(stream_create)              \
  X(stream_destroy)             \
  X(synchronize)                \
  X(done)                       \
  X(event_create)               \
  X(event_destroy)              \
  X(event_record)               \
  X(event_done)                 \
  X(stream_wait)                \
  X(capture_begin)              \
  X(capture_end)                \
  X(graph_launch)               \
  X(graph_destroy)              \
  X(raw_stream)                 \
  X(allocate)                   \
  X(free)                       \
  X(allocate_host)              \
  X(free_host)                  \
  X(memory)                     \
  X(copy_to_device)             \
  X(copy_to_host)               \
  X(copy_on_device)
  TANDEM_CUDA_SERVICES(TANDEM_CUDA_MEMBER)
  TANDEM_CUDA_OPERATIONS(TANDEM_CUDA_OPERATION_MEMBER)
#define TANDEM_CUDA_WORKSPACE_MEMBER(name) TANDEM_CUDA_MEMBER(name##_workspace)
  TANDEM_CUDA_WORKSPACES(TANDEM_CUDA_WORKSPACE_MEMBER)
#undef TANDEM_CUDA_WORKSPACE_MEMBER
#undef TANDEM_CUDA_OPERATION_MEMBER
#undef TANDEM_CUDA_MEMBER
};

class Library {
 public:
  // The one beside this executable, else the one on the dynamic linker's path. kNotFound where there is neither,
  // otherwise as below.
  static Result<Library> load();
  // kNotFound: no such file. kUnfit: it is no library that this machine can load, lacks a function, or is of another
  // version of the interface.
  static Result<Library> load(const std::filesystem::path& file);

  // libtandem_emulated.so, whose devices are emulated (kernels/emulated); the same errors.
  static Result<Library> load_emulated();

  const Functions& functions() const { return functions_; }
  const std::string& path() const { return path_; }

  // None where there is no driver or no GPU. kUnavailable where the driver answers with an error.
  Result<std::vector<Device>> devices() const;
  // A code of a function of the library as a status: kInvalid for arguments, kUnavailable for the driver's errors.
  Status status(std::string_view function, int code) const;

 private:
  static Result<Library> open(const std::string& name);
  static Result<Library> find(const char* file, const char* hint);

  std::shared_ptr<void> handle_;
  std::string path_;
  Functions functions_;
};

}  // namespace tandem::kernels::cuda
