// E8M0: the scale of a block, of the OCP Microscaling specification (2023). Code c is 2^(c - 127), from 2^-127 to
// 2^127; 0xff is NaN. There is no zero and no sign.
//
// From float: up, to the least power of two that is not below the value, since a scale that is too small would push its
// block beyond the range of the elements. Zero, and all up to 2^-127, becomes 2^-127. Above 2^127 it saturates to
// 2^127, infinity included. NaN and what is below zero become NaN. 2^-127 is a denormal as a float. Pure functions; any
// thread.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "kernels/formats/small_float.h"

namespace tandem::kernels {

struct e8m0 {
  uint8_t bits;
  friend bool operator==(e8m0, e8m0) = default;
};

constexpr e8m0 kE8m0Nan = {0xff};

constexpr float to_float(e8m0 value) {
  if (value == kE8m0Nan) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(value.bits == 0 ? 0x00400000u : static_cast<uint32_t>(value.bits) << 23);
}

constexpr e8m0 to_e8m0(float value) {
  const uint32_t bits = small_float::magnitude_of(value);
  if (bits > small_float::kInfinity || (bits > 0 && bits != small_float::bits_of(value))) return kE8m0Nan;
  if (bits <= 0x00400000u) return {0};
  const uint32_t up = (bits + 0x7fffffu) >> 23;
  return {static_cast<uint8_t>(up < 0xfe ? up : 0xfe)};
}

}  // namespace tandem::kernels
