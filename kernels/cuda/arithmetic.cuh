// The arithmetic of one element or one row, for the device and, by the same source, for the host.
//
// Everything here is made of additions, products, divisions, square roots and fused multiply-adds that IEEE 754 defines
// to the bit; compiled without contraction (-fmad=false, -ffp-contract=off) it gives the same bits on every machine.
// `exponential` is that of kernels/cpu/simd.h. Logarithm and exponential in double are our own because those of the
// C libraries differ: relative error below 4 ulp of double, so a result rounded to float differs from the C library's
// by at most one ulp of float, and hardly ever at all.
//
// Thread safety: pure functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define TANDEM_HD __host__ __device__ __forceinline__
#else
#define TANDEM_HD inline
#endif

// Before a loop whose reads do not wait for each other, and before one that picks registers.
#ifdef __CUDA_ARCH__
#define TANDEM_UNROLL_8 _Pragma("unroll 8")
#define TANDEM_UNROLL _Pragma("unroll")
#elif defined(__CUDACC__)
#define TANDEM_UNROLL_8
#define TANDEM_UNROLL
#else
#define TANDEM_UNROLL_8 _Pragma("GCC unroll 8")
#define TANDEM_UNROLL
#endif

namespace tandem::kernels::cuda {

constexpr int kLanes = 16;  // over which a row's sums are spread, whatever the warp's width

TANDEM_HD float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
TANDEM_HD uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
TANDEM_HD double double_of(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
TANDEM_HD uint64_t bits_of(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

TANDEM_HD float infinity() { return float_of(0x7f800000u); }
TANDEM_HD float not_a_number() { return float_of(0x7fc00000u); }

TANDEM_HD float from_bf16(uint16_t value) { return float_of(static_cast<uint32_t>(value) << 16); }
// To nearest, ties to even; NaN stays NaN.
TANDEM_HD uint16_t to_bf16_bits(float value) {
  const uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// An element of bf16 or fp32 as a float, and a float as it is stored in one.
TANDEM_HD float value_of(uint16_t element) { return from_bf16(element); }
TANDEM_HD float value_of(float element) { return element; }
template <typename T>
TANDEM_HD T stored(float value) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return value;
  } else {
    return to_bf16_bits(value);
  }
}

TANDEM_HD float larger(float a, float b) { return a > b ? a : b; }

// The fixed tree over sixteen lanes: 8 with 8, 4 with 4, 2 with 2, 1 with 1. Leaves the lanes changed.
TANDEM_HD float sum_of_lanes(float* lanes) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] = lanes[lane] + lanes[lane + half];
  }
  return lanes[0];
}

// e^x of numbers between these two, relative error below 2 ulp.
constexpr float kLeastExponent = -87.33f, kMostExponent = 88.72f;
TANDEM_HD float exponential_within(float x) {
  const float shifter = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const float shifted = fmaf(x, 1.44269504f, shifter);
  const float n = shifted - shifter;
  const float r = fmaf(n, -1.42860677e-6f, fmaf(n, -0.693145752f, x));
  float p = 1.3981999e-3f;
  p = fmaf(p, r, 8.3334519e-3f);
  p = fmaf(p, r, 4.1665796e-2f);
  p = fmaf(p, r, 1.6666666e-1f);
  p = fmaf(p, r, 0.5f);
  p = fmaf(p, r, 1.0f);
  p = fmaf(p, r, 1.0f);
  return float_of(bits_of(p) + ((bits_of(shifted) - bits_of(shifter)) << 23));
}
// The same of any number: 0 below the one, infinity above the other.
TANDEM_HD float exponential(float x) {
  if (x != x) return x;
  if (x < kLeastExponent) return 0;
  if (x > kMostExponent) return infinity();
  return exponential_within(x);
}

// ln x of a normal, positive x: x = 2^e m with m near 1, ln m = 2 artanh((m - 1) / (m + 1)) by its series.
TANDEM_HD double natural_log(double x) {
  const double infinite = double_of(0x7ff0000000000000ull);
  if (x == 0) return -infinite;
  if (!(x > 0) || x == infinite) return x;
  const uint64_t bits = bits_of(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = double_of((bits & 0x000fffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 1.4142135623730951) {
    m = m * 0.5;
    ++exponent;
  }
  const double s = (m - 1) / (m + 1), square = s * s;
  double series = 1.0 / 25;
  for (int odd = 23; odd >= 3; odd -= 2) series = fma(series, square, 1.0 / odd);
  const double of_m = 2 * fma(s * square, series, s);
  const double e = exponent;
  return fma(e, 6.93147180369123816490e-01, fma(e, 1.90821492927058770002e-10, of_m));
}

// e^x in double for x <= 0: n = round(x log2 e), the series of e^r in r = x - n ln 2, n added to the exponent. 0 below
// -700.
TANDEM_HD double exponential_of(double x) {
  if (x != x) return x;
  if (x < -700) return 0;
  const double n = rint(x * 1.4426950408889634);
  const double r = fma(n, -1.90821492927058770002e-10, fma(n, -6.93147180369123816490e-01, x));
  double series = 1;
  for (int term = 13; term >= 1; --term) series = fma(series, r * (1.0 / term), 1.0);
  return double_of(bits_of(series) + (static_cast<uint64_t>(static_cast<int64_t>(n)) << 52));
}

// maximum + ln(sum), the logarithm in double, rounded once.
TANDEM_HD float log_of_sum(float maximum, float sum) {
  return static_cast<float>(static_cast<double>(maximum) + natural_log(static_cast<double>(sum)));
}

}  // namespace tandem::kernels::cuda
