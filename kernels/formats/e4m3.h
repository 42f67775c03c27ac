// E4M3: 8 bits for weights and activations, of the OCP 8-bit floating point specification (2023). Largest value 448,
// least normal 2^-6, least denormal 2^-9; no infinities; NaN is 0x7f and 0xff.
//
// From float: to nearest, ties to even, and saturating: what lies beyond 448, infinity included, becomes 448 of its
// sign. Every NaN becomes 0x7f. The sign of zero is kept. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/formats/small_float.h"

namespace tandem::kernels {

struct e4m3 {
  uint8_t bits;
  friend bool operator==(e4m3, e4m3) = default;
};

constexpr float kE4m3Max = 448;

constexpr float to_float(e4m3 value) {
  const uint32_t magnitude = value.bits & 0x7fu;
  if (magnitude == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  return small_float::with_sign(small_float::expand(magnitude, 3, 7), value.bits >> 7);
}

constexpr e4m3 to_e4m3(float value) {
  if (small_float::is_nan(value)) return {0x7f};
  const uint32_t magnitude = small_float::nearest(value, 3, 7);
  const uint32_t sign = small_float::bits_of(value) >> 24 & 0x80u;
  return {static_cast<uint8_t>(sign | (magnitude < 0x7e ? magnitude : 0x7e))};
}

}  // namespace tandem::kernels
