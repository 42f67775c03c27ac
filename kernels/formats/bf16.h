// bfloat16: the upper half of an IEEE binary32, with its range, infinities and denormals.
//
// From float: to nearest, ties to even; what rounds beyond the largest value becomes infinity. NaN stays NaN, made
// quiet, with the sign and the upper bits that it had. Pure functions; any thread.
#pragma once

#include <bit>
#include <cstdint>

namespace tandem::kernels {

struct bf16 {
  uint16_t bits;
  friend bool operator==(bf16, bf16) = default;
};

constexpr float to_float(bf16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

constexpr bf16 to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace tandem::kernels
