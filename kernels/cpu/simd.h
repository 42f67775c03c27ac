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

#include "kernels/cpu/two_registers.h"
#include "kernels/formats/bf16.h"

namespace tandem::kernels::TANDEM_ISA {

constexpr int kLanes = 16;
typedef uint16_t Half __attribute__((vector_size(32)));

#ifdef __AVX512F__
typedef float Float __attribute__((vector_size(64)));
typedef int32_t Int __attribute__((vector_size(64)));
typedef uint32_t Bits __attribute__((vector_size(64)));

// Lane by lane a where the mask says so, else b.
template <typename Mask, typename V>
TANDEM_INLINE V select(Mask mask, V a, V b) {
  return mask ? a : b;
}
TANDEM_INLINE Bits load_bits(const void* source) {
  Bits value;
  std::memcpy(&value, source, sizeof value);
  return value;
}
TANDEM_INLINE void store_bits(void* target, Bits value) { std::memcpy(target, &value, sizeof value); }
// Masks of all lanes: without one GCC 12 warns of what it leaves undefined itself, and of a conversion of its own
// vectors it makes four instructions.
constexpr __mmask16 kAllLanes = 0xffff;
TANDEM_INLINE Bits widen(Half half) { return (Bits)_mm512_maskz_cvtepu16_epi32(kAllLanes, (__m256i)half); }
TANDEM_INLINE Half narrow(Bits value) {  // values below 2^16
  return (Half)_mm512_maskz_cvtepi32_epi16(kAllLanes, (__m512i)value);
}
TANDEM_INLINE Float to_float(Int value) { return __builtin_convertvector(value, Float); }
// a > b ? a : b in each lane: b where one is NaN.
TANDEM_INLINE Float maximum(Float a, Float b) { return (Float)_mm512_maskz_max_ps(kAllLanes, (__m512)a, (__m512)b); }
TANDEM_INLINE Float square_root(Float value) { return (Float)_mm512_maskz_sqrt_ps(kAllLanes, (__m512)value); }
// a * b + c, rounded once.
TANDEM_INLINE Float fma(Float a, Float b, Float c) { return (Float)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
template <int Half>
TANDEM_INLINE __m256 half_of(Float value) {
  __m256 halves[2];
  std::memcpy(halves, &value, sizeof halves);
  return halves[Half];
}
#else
typedef float EightFloats __attribute__((vector_size(32)));
typedef int32_t EightInts __attribute__((vector_size(32)));
typedef uint32_t EightBits __attribute__((vector_size(32)));
using Float = TwoRegisters<EightFloats>;
using Int = TwoRegisters<EightInts>;
using Bits = TwoRegisters<EightBits>;

template <typename M, typename V>
TANDEM_INLINE TwoRegisters<V> select(TwoRegisters<M> mask, TwoRegisters<V> a, TwoRegisters<V> b) {
  return {mask.low ? a.low : b.low, mask.high ? a.high : b.high};
}
TANDEM_INLINE Bits load_bits(const void* source) {
  const auto* halves = static_cast<const __m256i*>(source);
  return {(EightBits)_mm256_loadu_si256(halves), (EightBits)_mm256_loadu_si256(halves + 1)};
}
TANDEM_INLINE void store_bits(void* target, Bits value) {
  auto* halves = static_cast<__m256i*>(target);
  _mm256_storeu_si256(halves, (__m256i)value.low);
  _mm256_storeu_si256(halves + 1, (__m256i)value.high);
}
TANDEM_INLINE Bits widen(Half half) {
  return {(EightBits)_mm256_cvtepu16_epi32(_mm256_castsi256_si128((__m256i)half)),
          (EightBits)_mm256_cvtepu16_epi32(_mm256_extracti128_si256((__m256i)half, 1))};
}
TANDEM_INLINE Half narrow(Bits value) {
  constexpr int kBackInOrder = 0xd8;  // packing goes within 128 bits
  return (Half)_mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)value.low, (__m256i)value.high), kBackInOrder);
}
TANDEM_INLINE Float to_float(Int value) {
  return {(EightFloats)_mm256_cvtepi32_ps((__m256i)value.low), (EightFloats)_mm256_cvtepi32_ps((__m256i)value.high)};
}
TANDEM_INLINE Float maximum(Float a, Float b) {
  return {(EightFloats)_mm256_max_ps((__m256)a.low, (__m256)b.low),
          (EightFloats)_mm256_max_ps((__m256)a.high, (__m256)b.high)};
}
TANDEM_INLINE Float square_root(Float value) {
  return {(EightFloats)_mm256_sqrt_ps((__m256)value.low), (EightFloats)_mm256_sqrt_ps((__m256)value.high)};
}
TANDEM_INLINE Float fma(Float a, Float b, Float c) {
  return {(EightFloats)_mm256_fmadd_ps((__m256)a.low, (__m256)b.low, (__m256)c.low),
          (EightFloats)_mm256_fmadd_ps((__m256)a.high, (__m256)b.high, (__m256)c.high)};
}
template <int Half>
TANDEM_INLINE __m256 half_of(Float value) {
  return (__m256)(Half == 0 ? value.low : value.high);
}
#endif

TANDEM_INLINE Float broadcast(float value) { return Float{} + value; }
TANDEM_INLINE Float load(const float* source) { return (Float)load_bits(source); }
TANDEM_INLINE void store(float* target, Float value) { store_bits(target, (Bits)value); }

TANDEM_INLINE Bits load_halves(const bf16* source) {
  return widen((Half)_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source)));
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
  return narrow(select(value != value, nan, rounded));
}
TANDEM_INLINE void store(bf16* target, Float value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), (__m256i)round_to_bf16(value));
}

// Asks for elements that are read soon: rows are short, and who waits for the processor to see where they lead waits
// for the beginning of each. What lies behind the last row is asked for too, which does no harm.
template <typename T>
TANDEM_INLINE void fetch(const T* elements, size_t count) {
  constexpr size_t kLine = 64 / sizeof(T);
  for (size_t i = 0; i < count; i += kLine) _mm_prefetch(reinterpret_cast<const char*>(elements + i), _MM_HINT_T0);
}

// How a kernel writes results that nothing reads soon. Past the caches a line is not read before it is written, which
// is a third of what plain copying moves.
struct StoreInCaches {
  template <typename T>
  TANDEM_INLINE void operator()(T* target, Float value) const {
    store(target, value);
  }
  TANDEM_INLINE void finish() const {}
};
struct StorePastCaches {
  TANDEM_INLINE void operator()(bf16* target, Float value) const {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(target), (__m256i)round_to_bf16(value));
  }
  TANDEM_INLINE void operator()(float* target, Float value) const {
    _mm256_stream_ps(target, half_of<0>(value));
    _mm256_stream_ps(target + kLanes / 2, half_of<1>(value));
  }
  // Before another thread may read.
  TANDEM_INLINE void finish() const { _mm_sfence(); }
};
// Whether results of so many bytes a row, which lie one behind the other, are larger than the caches.
inline bool goes_past_caches(const void* target, size_t row_bytes, size_t rows) {
  constexpr size_t kBeyondCaches = size_t{32} << 20, kAligned = 32;
  return row_bytes * rows >= kBeyondCaches && row_bytes % kAligned == 0 &&
         reinterpret_cast<uintptr_t>(target) % kAligned == 0;
}
// work(how to store).
template <typename T, typename Work>
TANDEM_INLINE void choose_store(const T* target, size_t rows, size_t width, const Work& work) {
  if (goes_past_caches(target, width * sizeof(T), rows))
    work(StorePastCaches());
  else
    work(StoreInCaches());
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

// Folds sixteen lanes into one as a fixed tree: 8 with 8, 4 with 4, 2 with 2, 1 with 1.
template <typename Join8, typename Join4>
TANDEM_INLINE float fold(Float value, const Join8& join8, const Join4& join4) {
  const __m256 eight = join8(half_of<0>(value), half_of<1>(value));
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
  result = select(x < low, Float{}, result);
  result = select(x > high, broadcast(INFINITY), result);
  return select(x != x, x, result);
}
// The same of what is not above 0, as a score less the largest is. The result is 0 or a normal float.
TANDEM_INLINE Float exponential_below(Float x) {
  const Float low = broadcast(-87.33f);
  const Float result = exponential_within(maximum(low, x));
  return select(x != x, x, select(x < low, Float{}, result));
}

// 1 + e^x of what is no NaN, as `exponential` has it.
TANDEM_INLINE Float one_and_exponential(Float x) {
  const Float low = broadcast(-87.33f), high = broadcast(88.72f);
  const Float result = broadcast(1) + exponential_within(maximum(low, -maximum(-high, -x)));
  return select(x > high, broadcast(INFINITY), result);
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

TANDEM_INLINE Bits load_pairs(const bf16* source) { return load_bits(source); }
TANDEM_INLINE uint32_t load_pair(const bf16* source) {
  uint32_t pair;
  std::memcpy(&pair, source, sizeof pair);
  return pair;
}

// Two rows of sixteen side by side: pairs[i] = {low[i], high[i]}. `high` may be null: zeros.
TANDEM_INLINE void pair_up(const bf16* low, const bf16* high, bf16* pairs) {
  Bits both = load_halves(low);
  if (high) both = both | load_halves(high) << 16;
  store_bits(pairs, both);
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

#ifndef __AVX512F__
// Eight rows of eight pairs become columns: neighbours are joined by 4 bytes, then by 8, then by 16.
TANDEM_INLINE void transpose_eight(const bf16* source, size_t stride, bf16* target, size_t target_stride) {
  __m256 rows[8], pairs[8], fours[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) rows[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(source + i * stride));
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
    fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(reinterpret_cast<float*>(target + i * target_stride),
                     _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20));
    _mm256_storeu_ps(reinterpret_cast<float*>(target + (i + 4) * target_stride),
                     _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31));
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
  for (int row = 0; row < kLanes; ++row) store_bits(target + row * target_stride, rows[row]);
#else
  for (int row = 0; row < kLanes; row += 8) {
    for (int pair = 0; pair < kLanes; pair += 8)
      transpose_eight(source + row * stride + pair * 2, stride, target + pair * target_stride + row * 2, target_stride);
  }
#endif
}

}  // namespace tandem::kernels::TANDEM_ISA
