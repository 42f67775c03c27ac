// The operations of the C interface, each on the stream that it was given.
#include "kernels/cuda/all_operations.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operations.h"

namespace {

namespace cuda = tandem::kernels::cuda;

template <typename Arguments>
int launch(TandemCudaStream stream, const Arguments* arguments) {
  if (stream == nullptr || arguments == nullptr) return kTandemCudaNull;
  if (const cudaError_t error = cudaSetDevice(stream->device); error != cudaSuccess) {
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

size_t tandem_cuda_rms_norm_backward_workspace(int rows, int width) {
  return cuda::rms_norm_backward_workspace(rows, width);
}
size_t tandem_cuda_attention_backward_workspace(int rows, int heads) {
  return cuda::attention_backward_workspace(rows, heads);
}
size_t tandem_cuda_lm_head_workspace(int rows, int vocabulary) { return cuda::lm_head_workspace(rows, vocabulary); }
size_t tandem_cuda_lm_head_backward_workspace(int rows, int vocabulary) {
  return cuda::lm_head_backward_workspace(rows, vocabulary);
}
size_t tandem_cuda_sample_workspace(int rows, int vocabulary) { return cuda::sample_workspace(rows, vocabulary); }
size_t tandem_cuda_head_norm_backward_workspace(int rows, int heads, int head_size) {
  return cuda::head_norm_backward_workspace(rows, heads, head_size);
}
size_t tandem_cuda_sum_rows_workspace(int rows, int width) { return cuda::sum_rows_workspace(rows, width); }
size_t tandem_cuda_layer_norm_backward_workspace(int rows, int width) {
  return cuda::layer_norm_backward_workspace(rows, width);
}
size_t tandem_cuda_muon_workspace(int rows, int columns) { return cuda::muon_workspace(rows, columns); }
size_t tandem_cuda_digest_workspace(int64_t count) { return cuda::digest_workspace(count); }
size_t tandem_cuda_sum_of_squares_workspace(int64_t count) { return cuda::sum_of_squares_workspace(count); }

}  // extern "C"
