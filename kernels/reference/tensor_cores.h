// The result of one tensor core instruction of Hopper for a row and a column, bit for bit, as observed on an H200
// (tests/golden/make_tensor_cores.cu records it).
//
// The products are exact. They and the accumulator are aligned at the largest exponent of a term, which for a product
// is the sum of its factors' exponents; of each, bits below that exponent by more than `fraction_bits` are cut off
// towards zero. The sum is exact, and is cut off towards zero to the bits that the accumulator keeps. So the order of
// the terms does not matter within an instruction, and matters from one to the next. Infinities, NaN and sums beyond
// the range of fp32 are left out: nothing was recorded of them.
//
// Pure functions; any thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/formats/bf16.h"
#include "kernels/formats/e4m3.h"

namespace tandem::kernels::reference {

struct TensorCore {
  int terms;             // of K that one instruction takes
  int fraction_bits;     // of an aligned term
  int accumulator_bits;  // of the fraction that a result keeps
};
// mma.sync.m16n8k16 and wgmma.m64nNk16, f32.bf16.bf16.
constexpr TensorCore kHopperBf16{16, 25, 23};
// wgmma.m64nNk32, f32.e4m3.e4m3. (mma.sync of e4m3 is no instruction of Hopper: ptxas makes products of f16 of it.)
constexpr TensorCore kHopperE4m3{32, 13, 13};

// significand * 2^exponent; `top` is the exponent that terms are aligned by.
struct TensorTerm {
  int64_t significand = 0;
  int exponent = 0, top = 0;
};
inline TensorTerm term_of(float value, int fraction_bits) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), field = bits >> 23 & 0xff, fraction = bits & 0x7fffff;
  const int shift = 23 - fraction_bits;
  const int64_t magnitude = (field == 0 ? fraction : fraction | 0x800000u) >> shift;
  const int top = std::max<int>(static_cast<int>(field), 1) - 127;
  return {bits >> 31 ? -magnitude : magnitude, top - fraction_bits, top};
}
inline TensorTerm term_of(bf16 value) { return term_of(to_float(value), 7); }
// By E4M3's own exponents, whose least is -6: its small numbers are not normalised.
inline TensorTerm term_of(e4m3 value) {
  const int field = value.bits >> 3 & 15, fraction = value.bits & 7, top = std::max(field, 1) - 7;
  const int64_t magnitude = field == 0 ? fraction : fraction | 8;
  return {value.bits >> 7 ? -magnitude : magnitude, top - 3, top};
}

// accumulator + sum of a[k] b[k], of `core.terms` elements each.
template <typename T>
float tensor_core_sum(const TensorCore& core, std::span<const T> a, std::span<const T> b, float accumulator) {
  const TensorTerm start = term_of(accumulator, 23);
  int top = start.significand == 0 ? INT32_MIN : start.top;
  const auto product = [&](int k) {
    const TensorTerm x = term_of(a[k]), y = term_of(b[k]);
    return TensorTerm{x.significand * y.significand, x.exponent + y.exponent, x.top + y.top};
  };
  for (int k = 0; k < core.terms; ++k) {
    if (const TensorTerm term = product(k); term.significand != 0) top = std::max(top, term.top);
  }
  if (top == INT32_MIN) return 0;
  const int unit = top - core.fraction_bits;
  const auto aligned = [&](const TensorTerm& term) {
    const int shift = term.exponent - unit;
    if (shift >= 0) return term.significand << shift;
    const int64_t kept = shift < -62 ? 0 : std::abs(term.significand) >> -shift;
    return term.significand < 0 ? -kept : kept;
  };
  int64_t sum = start.significand == 0 ? 0 : aligned(start);
  for (int k = 0; k < core.terms; ++k) {
    if (const TensorTerm term = product(k); term.significand != 0) sum += aligned(term);
  }
  if (sum == 0) return 0;
  // The bits kept, fewer where the result is too small for the exponents of fp32.
  const int highest = std::bit_width(static_cast<uint64_t>(std::abs(sum))) - 1;
  const int too_small = std::max(0, -126 - (highest + unit));
  const int cut = std::max(0, highest - core.accumulator_bits + too_small);
  const int64_t kept = cut > 62 ? 0 : std::abs(sum) >> cut << cut;
  return std::ldexp(static_cast<float>(sum < 0 ? -kept : kept), unit);
}

}  // namespace tandem::kernels::reference
