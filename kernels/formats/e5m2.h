// E5M2: 8 bits with the range of binary16, of the OCP 8-bit floating point specification (2023). Largest value 57344,
// least normal 2^-14, least denormal 2^-16; infinities 0x7c and 0xfc; NaN above them.
//
// From float: to nearest, ties to even, and as binary16 does it: what rounds beyond 57344 (from 61440 on) becomes
// infinity, so that an overflowing gradient is seen and not clipped. Every NaN becomes 0x7f. The sign of zero is kept.
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/formats/small_float.h"

namespace tandem::kernels {

struct e5m2 {
  uint8_t bits;
  friend bool operator==(e5m2, e5m2) = default;
};

constexpr float to_float(e5m2 value) {
  const uint32_t magnitude = value.bits & 0x7fu;
  if (magnitude > 0x7c) return std::numeric_limits<float>::quiet_NaN();
  const float size = magnitude == 0x7c ? std::numeric_limits<float>::infinity() : small_float::expand(magnitude, 2, 15);
  return small_float::with_sign(size, value.bits >> 7);
}

constexpr e5m2 to_e5m2(float value) {
  if (small_float::is_nan(value)) return {0x7f};
  const uint32_t magnitude = small_float::nearest(value, 2, 15);
  const uint32_t sign = small_float::bits_of(value) >> 24 & 0x80u;
  return {static_cast<uint8_t>(sign | (magnitude < 0x7c ? magnitude : 0x7c))};
}

}  // namespace tandem::kernels
