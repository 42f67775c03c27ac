// Products of bf16, and of E4M3 with scales, with the sums of Hopper's tensor cores: on them by wgmma (tensor_gemm.cu,
// tensor_gemm_fp8.cu), elsewhere element by element with the same bits.
#pragma once

#include "kernels/cuda/quantize.cuh"

namespace tandem::kernels::cuda {

constexpr int kTensorTerms = 16, kTensorTermsE4m3 = 32;  // of one instruction

// significand * 2^(top - fraction bits of the format); `top` is the exponent that terms are aligned by.
struct TensorTerm {
  int64_t significand;
  int top;
};
TANDEM_HD TensorTerm tensor_term(float value, int fraction) {
  const uint32_t bits = bits_of(value), field = bits >> 23 & 0xffu;
  const int64_t magnitude = (field == 0 ? bits & 0x7fffffu : (bits & 0x7fffffu) | 0x800000u) >> (23 - fraction);
  return {bits >> 31 ? -magnitude : magnitude, static_cast<int>(field == 0 ? 1 : field) - 127};
}

// How tensor cores read a format and sum its products (kernels/reference/tensor_cores.h).
struct TensorBf16 {
  using Element = uint16_t;
  static constexpr int kTerms = kTensorTerms, kFraction = 7, kAligned = 25, kKept = 23;
  TANDEM_HD static TensorTerm term(uint16_t value) { return tensor_term(from_bf16(value), kFraction); }
};
struct TensorE4m3 {
  using Element = uint8_t;
  static constexpr int kTerms = kTensorTermsE4m3, kFraction = 3, kAligned = 13, kKept = 13;
  TANDEM_HD static TensorTerm term(uint8_t value) {
    const int field = value >> 3 & 15, magnitude = field == 0 ? value & 7 : (value & 7) | 8;
    return {value >> 7 ? -magnitude : magnitude, (field == 0 ? 1 : field) - 7};
  }
};

// significand * 2^exponent in units of 2^unit, cut off towards zero.
TANDEM_HD int64_t in_units(int64_t significand, int exponent, int unit) {
  const int shift = exponent - unit;
  if (shift >= 0) return significand << shift;
  if (shift < -62) return 0;
  return significand < 0 ? -(-significand >> -shift) : significand >> -shift;
}

// sum * 2^unit, cut off towards zero at `kept` bits behind the highest, and at those of a float.
TANDEM_HD float cut_to_float(int64_t sum, int unit, int kept) {
  if (sum == 0) return 0;
  uint64_t magnitude = sum < 0 ? static_cast<uint64_t>(-sum) : static_cast<uint64_t>(sum);
  int highest = 63;
  while (!(magnitude >> highest & 1)) --highest;
  const uint32_t sign = sum < 0 ? 0x80000000u : 0;
  const int exponent = highest + unit;
  if (exponent > 127) return float_of(sign | 0x7f800000u);
  const int left = exponent >= -126 ? kept : kept - (-126 - exponent);
  if (left < 0) return float_of(sign);
  const int cut = highest - left;
  magnitude = cut >= 0 ? magnitude >> cut << cut : magnitude;
  // To the place of a float's lowest bit, of which nothing is lost.
  const int lowest = (exponent >= -126 ? exponent : -126) - 23 - unit;
  magnitude = lowest >= 0 ? magnitude >> lowest : magnitude << -lowest;
  if (exponent < -126) return float_of(sign | static_cast<uint32_t>(magnitude));
  return float_of(sign | static_cast<uint32_t>(exponent + 127) << 23 | (static_cast<uint32_t>(magnitude) & 0x7fffffu));
}

// What one instruction makes of `count` terms, as many as it takes at most, and the sum so far.
template <typename Format>
TANDEM_HD float tensor_sum(const typename Format::Element* a, const typename Format::Element* b, int count, float sum) {
  constexpr int kNone = -1000;
  const TensorTerm start = tensor_term(sum, 23);
  int top = start.significand == 0 ? kNone : start.top;
  for (int i = 0; i < count; ++i) {
    const TensorTerm x = Format::term(a[i]), y = Format::term(b[i]);
    if (x.significand != 0 && y.significand != 0 && x.top + y.top > top) top = x.top + y.top;
  }
  if (top == kNone) return 0;
  const int unit = top - Format::kAligned;
  int64_t total = start.significand == 0 ? 0 : in_units(start.significand, start.top - 23, unit);
  for (int i = 0; i < count; ++i) {
    const TensorTerm x = Format::term(a[i]), y = Format::term(b[i]);
    if (x.significand != 0 && y.significand != 0)
      total += in_units(x.significand * y.significand, x.top + y.top - 2 * Format::kFraction, unit);
  }
  return cut_to_float(total, unit, Format::kKept);
}

// From first to last of `count` elements, beginning with `sum`.
template <typename Format>
TANDEM_HD float tensor_chain(const typename Format::Element* a, const typename Format::Element* b, int count) {
  float sum = 0;
  for (int k = 0; k < count; k += Format::kTerms) {
    const int terms = count - k < Format::kTerms ? count - k : Format::kTerms;
    sum = tensor_sum<Format>(a + k, b + k, terms, sum);
  }
  return sum;
}

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
