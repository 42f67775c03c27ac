// Products of bf16 with the sums of Hopper's tensor cores: on them by wgmma (tensor_gemm.cu), elsewhere element by
// element with the same bits.
#pragma once

#include "kernels/cuda/execution.cuh"

namespace tandem::kernels::cuda {

constexpr int kTensorTerms = 16;         // of one instruction
constexpr int kTensorFractionBits = 25;  // of an aligned term

// significand * 2^(top - fraction) of a bf16, whose fraction has 7 bits, or of a float, with 23.
struct TensorTerm {
  int64_t significand;
  int top;
};
TANDEM_HD TensorTerm tensor_term(float value, int fraction) {
  const uint32_t bits = bits_of(value), field = bits >> 23 & 0xffu;
  const int64_t magnitude = (field == 0 ? bits & 0x7fffffu : (bits & 0x7fffffu) | 0x800000u) >> (23 - fraction);
  return {bits >> 31 ? -magnitude : magnitude, static_cast<int>(field == 0 ? 1 : field) - 127};
}

// significand * 2^exponent in units of 2^unit, cut off towards zero.
TANDEM_HD int64_t in_units(int64_t significand, int exponent, int unit) {
  const int shift = exponent - unit;
  if (shift >= 0) return significand << shift;
  if (shift < -62) return 0;
  return significand < 0 ? -(-significand >> -shift) : significand >> -shift;
}

// sum * 2^unit, cut off towards zero at the bits of a float.
TANDEM_HD float cut_to_float(int64_t sum, int unit) {
  if (sum == 0) return 0;
  uint64_t magnitude = sum < 0 ? static_cast<uint64_t>(-sum) : static_cast<uint64_t>(sum);
  int highest = 63;
  while (!(magnitude >> highest & 1)) --highest;
  const uint32_t sign = sum < 0 ? 0x80000000u : 0;
  const int exponent = highest + unit;
  if (exponent > 127) return float_of(sign | 0x7f800000u);
  const int fraction = exponent >= -126 ? 23 : 23 - (-126 - exponent);  // bits below the highest that stay
  if (fraction < 0) return float_of(sign);
  const int cut = highest - fraction;
  magnitude = cut >= 0 ? magnitude >> cut : magnitude << -cut;
  if (exponent < -126) return float_of(sign | static_cast<uint32_t>(magnitude));
  return float_of(sign | static_cast<uint32_t>(exponent + 127) << 23 | (static_cast<uint32_t>(magnitude) & 0x7fffffu));
}

// What one instruction makes of `count` terms, kTensorTerms at most, and the sum so far.
TANDEM_HD float tensor_sum(const uint16_t* a, const uint16_t* b, int count, float sum) {
  const TensorTerm start = tensor_term(sum, 23);
  int top = start.significand == 0 ? -1000 : start.top;
  for (int i = 0; i < count; ++i) {
    const TensorTerm x = tensor_term(from_bf16(a[i]), 7), y = tensor_term(from_bf16(b[i]), 7);
    if (x.significand != 0 && y.significand != 0 && x.top + y.top > top) top = x.top + y.top;
  }
  if (top == -1000) return 0;
  const int unit = top - kTensorFractionBits;
  int64_t total = start.significand == 0 ? 0 : in_units(start.significand, start.top - 23, unit);
  for (int i = 0; i < count; ++i) {
    const TensorTerm x = tensor_term(from_bf16(a[i]), 7), y = tensor_term(from_bf16(b[i]), 7);
    if (x.significand != 0 && y.significand != 0)
      total += in_units(x.significand * y.significand, x.top + y.top - 14, unit);
  }
  return cut_to_float(total, unit);
}

struct TensorGemmElement {
  TandemCudaTensorGemm g;
  TANDEM_HD void operator()(int64_t i) const {
    const int64_t row = i / g.n, column = i % g.n;
    float sum = 0;
    for (int k = 0; k < g.k; k += kTensorTerms) {
      const int count = g.k - k < kTensorTerms ? g.k - k : kTensorTerms;
      sum = tensor_sum(g.a + row * g.k + k, g.b + column * g.k + k, count, sum);
    }
    if (g.out)
      g.out[row * g.out_stride + column] = to_bf16_bits(sum);
    else
      g.out_float[row * g.out_stride + column] = sum;
  }
};

template <typename Execution>
int operate(Execution& execution, const TandemCudaTensorGemm& g) {
  if (!g.a || !g.b || (!g.out && !g.out_float)) return kTandemCudaNull;
  if (g.m < 0 || g.n < 0 || g.k < 0) return kTandemCudaSize;
  if (g.out_stride < g.n) return kTandemCudaStride;
  const auto lies_well = [](const uint16_t* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
  if ((g.out && g.out_float) || g.k % 8 != 0 || !lies_well(g.a) || !lies_well(g.b)) return kTandemCudaShape;
  if constexpr (requires { execution.run_tensor_gemm(g); }) {
    if (g.m > 0 && g.n > 0 && g.k > 0 && execution.has_wgmma()) return execution.run_tensor_gemm(g);
  }
  return each_element(execution, static_cast<int64_t>(g.m) * g.n, TensorGemmElement{g});
}

}  // namespace tandem::kernels::cuda
