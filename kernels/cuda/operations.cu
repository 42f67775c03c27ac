// The operations of the C interface, each on the stream that it was given.
#include "kernels/cuda/all_operations.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operations.h"

namespace {

namespace cuda = tandem::kernels::cuda;

template <typename Arguments>
int launch(TandemCudaStream stream, const Arguments* arguments) {
  if (stream == nullptr || arguments == nullptr) return kTandemCudaNull;
  if (const cudaError_t error = cuda::make_current(stream->device); error != cudaSuccess) {
    return cuda::code_of(error);
  }
  cuda::Launch execution(*stream);
  return cuda::operate(execution, *arguments);
}

}  // namespace

extern "C" {

#define TANDEM_CUDA_DEFINE(operation, Arguments)                                             \
  int tandem_cuda_##operation(TandemCudaStream stream, const TandemCuda##Arguments* given) { \
    return launch(stream, given);                                                            \
  }
TANDEM_CUDA_OPERATIONS(TANDEM_CUDA_DEFINE)
#undef TANDEM_CUDA_DEFINE

#include "kernels/cuda/workspaces.inl"

}  // extern "C"
