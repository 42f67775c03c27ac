// Kernels of execution.cuh on a stream of a GPU.
#pragma once

#include "kernels/cuda/execution.cuh"
#include "kernels/cuda/mxfp8.cuh"

struct TandemCudaStreamState {
  int device;
  cudaStream_t stream;
};

namespace tandem::kernels::cuda {

inline int code_of(cudaError_t error) {
  return error == cudaSuccess ? kTandemCudaOk : kTandemCudaRuntime + static_cast<int>(error);
}

// Makes a device the one that this thread speaks to. Asking costs less than setting, and other libraries may have set
// another one since.
inline cudaError_t make_current(int device) {
  int current = -1;
  if (cudaGetDevice(&current) == cudaSuccess && current == device) return cudaSuccess;
  return cudaSetDevice(device);
}

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads) execute(const __grid_constant__ Kernel kernel) {
  __shared__ typename Kernel::Shared shared;
  typename Kernel::Private own;
  for (int phase = 0; kernel.run(blockIdx.x, phase, threadIdx.x, shared, own); ++phase) __syncthreads();
}

class Launch {
 public:
  explicit Launch(const TandemCudaStreamState& stream) : stream_(stream) {}

  template <typename Kernel>
  int run(const Kernel& kernel, int64_t blocks) const {
    execute<<<static_cast<unsigned>(blocks), Kernel::kThreads, 0, stream_.stream>>>(kernel);
    return code_of(cudaGetLastError());
  }

  // Products on tensor cores that take scales, where the stream's device has them (mxfp8.cu).
  bool has_block_scaling() const;
  int run_block_scaled(const Mxfp8Problem& problem) const;
  // Products by wgmma, where the device has it (tensor_gemm.cu, tensor_gemm_fp8.cu).
  bool has_wgmma() const;
  int run_tensor_gemm(const TandemCudaTensorGemm& gemm) const;
  int run_tensor_gemm(const TandemCudaTensorGemmFp8& gemm) const;

 private:
  const TandemCudaStreamState& stream_;
};

}  // namespace tandem::kernels::cuda
