// Sixteen floats at a time, the same on every instruction set.
//
// A Float is 16 lanes whether the machine has one 512-bit register for it or two of 256 bits, and every function here
// rounds the same way on all of them; so everything built from it but `dot2` gives the same bits on AVX2 and AVX-512.
// Included once for each instruction set, inside the namespace that TANDEM_ISA names.
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/formats/bf16.h"

#define TANDEM_INLINE inline __attribute__((always_inline))

namespace tandem::kernels::TANDEM_ISA {

constexpr int kLanes = 16;
typedef float Float __attribute__((vector_size(64)));
typedef int32_t Int __attribute__((vector_size(64)));
typedef uint32_t Bits __attribute__((vector_size(64)));
typedef uint16_t Half __attribute__((vector_size(32)));

TANDEM_INLINE Float broadcast(float value) { return Float{} + value; }

TANDEM_INLINE Float load(const float* source) {
  Float value;
  std::memcpy(&value, source, sizeof value);
  return value;
}
TANDEM_INLINE void store(float* target, Float value) { std::memcpy(target, &value, sizeof value); }

TANDEM_INLINE Bits load_halves(const bf16* source) {
  Half half;
  std::memcpy(&half, source, sizeof half);
  return __builtin_convertvector(half, Bits);
}
TANDEM_INLINE Float load(const bf16* source) { return (Float)(load_halves(source) << 16); }
TANDEM_INLINE Half round_to_bf16(Float value) {
#ifdef __AVX512BF16__
  // The processor's own rounding differs in denormals alone, which it flushes.
  constexpr int kDenormal = 0x20;
  if (__builtin_expect(_mm512_fpclass_ps_mask((__m512)value, kDenormal) == 0, 1))
    return (Half)_mm512_cvtneps_pbh((__m512)value);
#endif
  const Bits bits = (Bits)value;
  const Bits rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const Bits nan = (bits >> 16) | 0x40u;
  return __builtin_convertvector((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded, Half);
}
TANDEM_INLINE void store(bf16* target, Float value) {
  const Half half = round_to_bf16(value);
  std::memcpy(target, &half, sizeof half);
}

// The first `count` < 16 lanes; the others read as `fill` and are not written.
template <typename T>
TANDEM_INLINE Float load_part(const T* source, int count, float fill = 0) {
  T buffer[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    if constexpr (sizeof(T) == 2)
      buffer[i] = to_bf16(fill);
    else
      buffer[i] = fill;
  }
  std::memcpy(buffer, source, sizeof(T) * count);
  return load(buffer);
}
template <typename T>
TANDEM_INLINE void store_part(T* target, Float value, int count) {
  T buffer[kLanes];
  store(buffer, value);
  std::memcpy(target, buffer, sizeof(T) * count);
}

// a * b + c, rounded once.
TANDEM_INLINE Float fma(Float a, Float b, Float c) {
#ifdef __AVX512F__
  return (Float)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
  __m256 x[2], y[2], z[2];
  std::memcpy(x, &a, 64);
  std::memcpy(y, &b, 64);
  std::memcpy(z, &c, 64);
  z[0] = _mm256_fmadd_ps(x[0], y[0], z[0]);
  z[1] = _mm256_fmadd_ps(x[1], y[1], z[1]);
  Float result;
  std::memcpy(&result, z, 64);
  return result;
#endif
}

TANDEM_INLINE Float maximum(Float a, Float b) { return a > b ? a : b; }

// Folds sixteen lanes into one as a fixed tree: 8 with 8, 4 with 4, 2 with 2, 1 with 1.
template <typename Join8, typename Join4>
TANDEM_INLINE float fold(Float value, const Join8& join8, const Join4& join4) {
  __m256 halves[2];
  std::memcpy(halves, &value, sizeof halves);
  const __m256 eight = join8(halves[0], halves[1]);
  __m128 x = join4(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  x = join4(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(join4(x, _mm_movehdup_ps(x)));
}
TANDEM_INLINE float sum(Float value) {
  return fold(
      value, [](__m256 a, __m256 b) { return _mm256_add_ps(a, b); },
      [](__m128 a, __m128 b) { return _mm_add_ps(a, b); });
}
TANDEM_INLINE float largest(Float value) {
  return fold(
      value, [](__m256 a, __m256 b) { return _mm256_max_ps(a, b); },
      [](__m128 a, __m128 b) { return _mm_max_ps(a, b); });
}

// e^x from x within its range.
TANDEM_INLINE Float exponential_within(Float clamped) {
  const Float shifter = broadcast(12582912.0f);  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const Float shifted = fma(clamped, broadcast(1.44269504f), shifter);
  const Float n = shifted - shifter;
  const Float r = fma(n, broadcast(-1.42860677e-6f), fma(n, broadcast(-0.693145752f), clamped));
  Float p = broadcast(1.3981999e-3f);
  p = fma(p, r, broadcast(8.3334519e-3f));
  p = fma(p, r, broadcast(4.1665796e-2f));
  p = fma(p, r, broadcast(1.6666666e-1f));
  p = fma(p, r, broadcast(0.5f));
  p = fma(p, r, broadcast(1.0f));
  p = fma(p, r, broadcast(1.0f));
  const Int exponent = ((Int)shifted - (Int)shifter) << 23;
  return (Float)((Int)p + exponent);
}
// e^x, relative error below 2 ulp; 0 below -87.33, infinity above 88.72.
TANDEM_INLINE Float exponential(Float x) {
  const Float low = broadcast(-87.33f), high = broadcast(88.72f);
  Float result = exponential_within(maximum(low, -maximum(-high, -x)));
  result = x < low ? Float{} : result;
  result = x > high ? broadcast(INFINITY) : result;
  return x != x ? x : result;
}
// The same of what is not above 0, as a score less the largest is. The result is 0 or a normal float.
TANDEM_INLINE Float exponential_below(Float x) {
  const Float low = broadcast(-87.33f);
  const Float result = exponential_within(maximum(low, x));
  return x != x ? x : x < low ? Float{} : result;
}

// acc[lane] + a.low * b[lane].low + a.high * b[lane].high over pairs of bf16; the one place where instruction sets
// differ (kernels/reference/products.h). With AVX512_BF16: high first, then low, each fused, denormals flushed; without
// it: low first, then high, each fused.
TANDEM_INLINE Float dot2(Float accumulator, uint32_t a_pair, Bits b_pairs) {
#ifdef __AVX512BF16__
  return (Float)_mm512_dpbf16_ps((__m512)accumulator, (__m512bh)_mm512_set1_epi32(static_cast<int>(a_pair)),
                                 (__m512bh)b_pairs);
#else
  const Float a_low = broadcast(std::bit_cast<float>(a_pair << 16));
  const Float a_high = broadcast(std::bit_cast<float>(a_pair & 0xffff0000u));
  return fma(a_high, (Float)(b_pairs & 0xffff0000u), fma(a_low, (Float)(b_pairs << 16), accumulator));
#endif
}

// Probabilities, which are no denormals: the processor's rounding flushes those.
TANDEM_INLINE void store_probabilities(bf16* target, Float value) {
#ifdef __AVX512BF16__
  const __m256bh rounded = _mm512_cvtneps_pbh((__m512)value);
  std::memcpy(target, &rounded, sizeof rounded);
#else
  store(target, value);
#endif
}

TANDEM_INLINE void store_probabilities(float* target, Float value) { store(target, value); }

TANDEM_INLINE Bits load_pairs(const bf16* source) {
  Bits bits;
  std::memcpy(&bits, source, sizeof bits);
  return bits;
}
TANDEM_INLINE uint32_t load_pair(const bf16* source) {
  uint32_t pair;
  std::memcpy(&pair, source, sizeof pair);
  return pair;
}

// Two rows of sixteen side by side: pairs[i] = {low[i], high[i]}. `high` may be null: zeros.
TANDEM_INLINE void pair_up(const bf16* low, const bf16* high, bf16* pairs) {
  Bits both = load_halves(low);
  if (high) both |= load_halves(high) << 16;
  std::memcpy(pairs, &both, sizeof both);
}

#ifdef __AVX512F__
// Two rows of a matrix, of which one has bit Distance in its number and the other not, exchange the lanes of which the
// same is true: done for 8, 4, 2 and 1, this transposes 16 x 16.
template <int Distance, size_t... Lane>
TANDEM_INLINE void exchange(Bits& without, Bits& with, std::index_sequence<Lane...>) {
  const Bits old = without;
  without = __builtin_shufflevector(old, with, (Lane & Distance ? kLanes + Lane - Distance : Lane)...);
  with = __builtin_shufflevector(old, with, (Lane & Distance ? kLanes + Lane : Lane + Distance)...);
}
template <int Distance>
TANDEM_INLINE void exchange_all(Bits (&rows)[kLanes]) {
#pragma GCC unroll 16
  for (int row = 0; row < kLanes; ++row) {
    if ((row & Distance) == 0) {
      exchange<Distance>(rows[row], rows[row + Distance], std::make_index_sequence<size_t{kLanes}>());
    }
  }
}
#endif

// Sixteen rows of sixteen pairs become columns; `stride` and `target_stride` elements from row to row.
inline void transpose_pairs(const bf16* source, size_t stride, bf16* target, size_t target_stride) {
#ifdef __AVX512F__
  Bits rows[kLanes];
#pragma GCC unroll 16
  for (int row = 0; row < kLanes; ++row) rows[row] = load_pairs(source + row * stride);
  exchange_all<8>(rows);
  exchange_all<4>(rows);
  exchange_all<2>(rows);
  exchange_all<1>(rows);
#pragma GCC unroll 16
  for (int row = 0; row < kLanes; ++row) std::memcpy(target + row * target_stride, &rows[row], sizeof rows[row]);
#else
  for (int row = 0; row < kLanes; ++row) {
    for (int pair = 0; pair < kLanes; ++pair)
      std::memcpy(target + pair * target_stride + row * 2, source + row * stride + pair * 2, 2 * sizeof(bf16));
  }
#endif
}

}  // namespace tandem::kernels::TANDEM_ISA
