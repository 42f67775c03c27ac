// Kernels of execution.cuh on a stream of a GPU.
#pragma once

#include <atomic>

#include "kernels/cuda/execution.cuh"
#include "kernels/cuda/mxfp8.cuh"
#include "kernels/cuda/warps.cuh"

struct TandemCudaStreamState {
  int device;
  cudaStream_t stream;
  bool tensor;  // kTandemCudaTensor
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
__global__ void __launch_bounds__(workers_of<Kernel>()) execute(const __grid_constant__ Kernel kernel) {
  __shared__ typename Kernel::Shared shared;
  typename Kernel::Private own;
  for (int phase = 0; kernel.run(blockIdx.x, phase, threadIdx.x, shared, own); ++phase) __syncthreads();
}

template <ByWarps Kernel>
__global__ void __launch_bounds__(workers_of<Kernel>() * kWarp, blocks_at_once_of<Kernel>())
    execute_warps(const __grid_constant__ Kernel kernel) {
  extern __shared__ __align__(128) uint8_t memory[];
  auto& shared = *reinterpret_cast<typename Kernel::Shared*>(memory);
  typename Kernel::Private own;
  for (int phase = 0; kernel.run(blockIdx.x, phase, threadIdx.x / kWarp, shared, own); ++phase) __syncthreads();
}

// More than 48 KiB a block must be asked for, once a device and kernel; of one kernel always as much.
template <auto kKernel>
int allow_shared_memory(int device, size_t bytes) {
  constexpr int kMostDevices = 64;
  static std::atomic<bool> allowed[kMostDevices];
  if (device < kMostDevices && allowed[device]) return kTandemCudaOk;
  const int code =
      code_of(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  if (code == kTandemCudaOk && device < kMostDevices) allowed[device] = true;
  return code;
}

class Launch {
 public:
  explicit Launch(const TandemCudaStreamState& stream) : stream_(stream) {}

  template <typename Kernel>
  int run(const Kernel& kernel, int64_t blocks) const {
    if constexpr (ByWarps<Kernel>) {
      if (const int code = allow_shared_memory<execute_warps<Kernel>>(stream_.device, sizeof(typename Kernel::Shared)))
        return code;
      execute_warps<<<static_cast<unsigned>(blocks), workers_of<Kernel>() * kWarp, sizeof(typename Kernel::Shared),
                      stream_.stream>>>(kernel);
    } else {
      execute<<<static_cast<unsigned>(blocks), workers_of<Kernel>(), 0, stream_.stream>>>(kernel);
    }
    return code_of(cudaGetLastError());
  }

  // Whether products are those of tensor cores (warps.cuh), else chains of fused multiply-adds.
  bool tensor() const { return stream_.tensor; }

  // Products on tensor cores that take scales, where the stream's device has them (mxfp8.cu).
  bool has_block_scaling() const;
  int run_block_scaled(const Mxfp8Problem& problem) const;
  // Products by wgmma, where the device has it (tensor_gemm.cu, tensor_gemm_fp8.cu).
  bool has_wgmma() const;
  int run_tensor_gemm(const TandemCudaTensorGemm& gemm) const;
  // Both sides of bf16, along k, in rows at multiples of 16 bytes.
  int run_tensor_gemm(const TandemCudaGemm& gemm) const;
  int run_tensor_gemm(const TandemCudaTensorGemmFp8& gemm) const;

 private:
  const TandemCudaStreamState& stream_;
};

}  // namespace tandem::kernels::cuda
