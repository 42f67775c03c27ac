// What Hopper's tensor cores make of a row and a column, to the bit (kernels/reference/tensor_cores.h), in plain
// arithmetic: for the host, and for devices that lack the instruction.
//
// Thread safety: pure functions.
#pragma once

#include "kernels/cuda/arithmetic.cuh"

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
#ifdef __CUDA_ARCH__
  const int highest = 63 - __clzll(static_cast<long long>(magnitude));
#else
  const int highest = 63 - __builtin_clzll(magnitude);
#endif
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

// Sixteen elements of bf16 of a row or a column, taken apart once for the many sums that they are part of.
struct TensorTerms {
  int32_t significands[kTensorTerms], tops[kTensorTerms];
};
TANDEM_HD TensorTerms tensor_terms(const uint16_t* values) {
  TensorTerms terms;
  for (int i = 0; i < kTensorTerms; ++i) {
    const TensorTerm term = TensorBf16::term(values[i]);
    terms.significands[i] = static_cast<int32_t>(term.significand);
    terms.tops[i] = term.top;
  }
  return terms;
}
// What tensor_sum makes of them. An aligned term has at most 27 bits before the point of its unit, so a sum of 17 fits.
TANDEM_HD float tensor_sum_of_terms(const TensorTerms& a, const TensorTerms& b, float sum) {
  constexpr int kNone = -1000;
  const TensorTerm start = tensor_term(sum, 23);
  int top = start.significand == 0 ? kNone : start.top;
  int32_t products[kTensorTerms], tops[kTensorTerms];
  for (int i = 0; i < kTensorTerms; ++i) {
    products[i] = a.significands[i] * b.significands[i];
    tops[i] = a.tops[i] + b.tops[i];
    const int term_top = products[i] == 0 ? kNone : tops[i];
    top = term_top > top ? term_top : top;
  }
  if (top == kNone) return 0;
  const int unit = top - TensorBf16::kAligned;
  int64_t total = start.significand == 0 ? 0 : in_units(start.significand, start.top - 23, unit);
  // A product of two 8-bit significands is 2^(tops - 14): 11 bits above the unit where its exponent is the largest.
  int32_t aligned = 0;
  for (int i = 0; i < kTensorTerms; ++i) {
    const int below = top - tops[i], magnitude = products[i] < 0 ? -products[i] : products[i];
    const int units = magnitude == 0 || below > 31 ? 0 : magnitude << 11 >> below;
    aligned += products[i] < 0 ? -units : units;
  }
  total += aligned;
  return cut_to_float(total, unit, TensorBf16::kKept);
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

}  // namespace tandem::kernels::cuda
