// Products of bf16, and of E4M3 with scales, with the sums of Hopper's tensor cores: on them by wgmma (tensor_gemm.cu,
// tensor_gemm_fp8.cu), elsewhere element by element with the same bits.
#pragma once

#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/tensor_sums.cuh"

namespace tandem::kernels::cuda {

template <typename Arguments>
TANDEM_HD void put_element(const Arguments& g, int64_t row, int64_t column, float sum) {
  if (g.out)
    g.out[row * g.out_stride + column] = to_bf16_bits(sum);
  else
    g.out_float[row * g.out_stride + column] = sum;
}

struct TensorGemmElement {
  TandemCudaTensorGemm g;
  TANDEM_HD void operator()(int64_t i) const {
    const int64_t row = i / g.n, column = i % g.n;
    put_element(g, row, column, tensor_chain<TensorBf16>(g.a + row * g.k, g.b + column * g.k, g.k));
  }
};

constexpr int kTensorScaleBlock = 128;
struct TensorGemmFp8Element {
  TandemCudaTensorGemmFp8 g;
  TANDEM_HD void operator()(int64_t i) const {
    const int64_t row = i / g.n, column = i % g.n, blocks = pieces(g.k, kTensorScaleBlock);
    float sum = 0;
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t first = block * kTensorScaleBlock;
      const float products = tensor_chain<TensorE4m3>(g.a + row * g.k + first, g.b + column * g.k + first,
                                                      static_cast<int>(block_length(block, kTensorScaleBlock, g.k)));
      const float scale = from_e8m0(g.a_scales[row * blocks + block]) *
                          from_e8m0(g.b_scales[column / kTensorScaleBlock * blocks + block]);
      sum = fmaf(products, scale, sum);
    }
    put_element(g, row, column, sum);
  }
};

template <typename Element, typename Execution, typename Arguments>
int multiply_by_tensor_cores(Execution& execution, const Arguments& g, int k_multiple) {
  if (g.m < 0 || g.n < 0 || g.k < 0) return kTandemCudaSize;
  if (g.out_stride < g.n) return kTandemCudaStride;
  const auto lies_well = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
  if ((g.out && g.out_float) || g.k % k_multiple != 0 || !lies_well(g.a) || !lies_well(g.b)) return kTandemCudaShape;
  if constexpr (requires { execution.run_tensor_gemm(g); }) {
    if (g.m > 0 && g.n > 0 && g.k > 0 && execution.has_wgmma()) return execution.run_tensor_gemm(g);
  }
  return each_element(execution, static_cast<int64_t>(g.m) * g.n, Element{g});
}
template <typename Execution>
int operate(Execution& execution, const TandemCudaTensorGemm& g) {
  if (!g.a || !g.b || (!g.out && !g.out_float)) return kTandemCudaNull;
  return multiply_by_tensor_cores<TensorGemmElement>(execution, g, 8);
}
template <typename Execution>
int operate(Execution& execution, const TandemCudaTensorGemmFp8& g) {
  if (!g.a || !g.a_scales || !g.b || !g.b_scales || (!g.out && !g.out_float)) return kTandemCudaNull;
  return multiply_by_tensor_cores<TensorGemmFp8Element>(execution, g, 16);
}

}  // namespace tandem::kernels::cuda
