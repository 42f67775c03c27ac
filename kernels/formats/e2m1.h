// E2M1: 4 bits, of the OCP Microscaling specification (2023): 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. No
// infinities, no NaN.
//
// The code is the low half of a byte, sign in bit 3; the upper half is zero when written and ignored when read. From
// float: to nearest, ties to even, and saturating: what lies beyond 6, infinity included, becomes 6 of its sign. NaN,
// which has no code, becomes 6, as on NVIDIA's processors. The sign of zero is kept. Pure functions; any thread.
#pragma once

#include <cstdint>

#include "kernels/formats/small_float.h"

namespace tandem::kernels {

struct e2m1 {
  uint8_t bits;
  friend bool operator==(e2m1, e2m1) = default;
};

constexpr float to_float(e2m1 value) {
  return small_float::with_sign(small_float::expand(value.bits & 0x7u, 1, 1), value.bits >> 3 & 1u);
}

constexpr e2m1 to_e2m1(float value) {
  if (small_float::is_nan(value)) return {0x7};
  const uint32_t magnitude = small_float::nearest(value, 1, 1);
  const uint32_t sign = small_float::bits_of(value) >> 28 & 0x8u;
  return {static_cast<uint8_t>(sign | (magnitude < 0x7 ? magnitude : 0x7))};
}

}  // namespace tandem::kernels
