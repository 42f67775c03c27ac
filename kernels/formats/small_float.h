// Common parts of binary floats of a few bits: a sign, an exponent with a bias, a mantissa, denormals below the least
// exponent. Each format's header adds the meaning of its largest codes.
//
// A magnitude is a code without its sign. Exact: no arithmetic on floats, so no rounding mode and no flushing of
// denormals has a say, at compile time and at run time alike. Pure functions; any thread.
#pragma once

#include <bit>
#include <cstdint>

namespace tandem::kernels::small_float {

constexpr uint32_t kInfinity = 0x7f800000;
constexpr uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
constexpr uint32_t magnitude_of(float value) { return bits_of(value) & 0x7fffffffu; }
constexpr bool is_nan(float value) { return magnitude_of(value) > kInfinity; }

// The magnitude nearest to |value|, ties to the even one, as if the format's exponents went on without end; value is
// not NaN. Rounding up at the top of a binade carries into the exponent, as it does in the formats themselves.
constexpr uint32_t nearest(float value, int mantissa_bits, int bias) {
  const uint32_t bits = magnitude_of(value);
  const int field = static_cast<int>(bits >> 23);
  const uint32_t significand = (bits & 0x7fffffu) | (field > 0 ? 0x800000u : 0u);
  const int exponent = field > 0 ? field : 1;
  const int least = 128 - bias;  // the format's least normal exponent, as a float's field
  const int step = exponent > least ? exponent : least;
  const int dropped = 23 - mantissa_bits + step - exponent;
  if (dropped > 25) return 0;  // below half of the least denormal
  const uint32_t rounded = (significand + (1u << (dropped - 1)) - 1 + ((significand >> dropped) & 1u)) >> dropped;
  return (static_cast<uint32_t>(step - least) << mantissa_bits) + rounded;
}

// The value of a finite magnitude, which a float holds exactly.
constexpr float expand(uint32_t magnitude, int mantissa_bits, int bias) {
  const uint32_t field = magnitude >> mantissa_bits, mantissa = magnitude & ((1u << mantissa_bits) - 1);
  if (field == 0) {
    const float unit = std::bit_cast<float>(static_cast<uint32_t>(128 - bias - mantissa_bits) << 23);
    return static_cast<float>(mantissa) * unit;
  }
  return std::bit_cast<float>((field + 127 - bias) << 23 | mantissa << (23 - mantissa_bits));
}

constexpr float with_sign(float magnitude, bool negative) { return negative ? -magnitude : magnitude; }

}  // namespace tandem::kernels::small_float
