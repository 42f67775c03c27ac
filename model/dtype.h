// Formats of numbers as they lie in files, and the conversions that importing needs.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem::model {

enum class DType : uint8_t {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kF16,
  kBF16,
  kF32,
  kF64,
};

int bytes_of(DType dtype);                       // of one element
std::string_view safetensors_name(DType dtype);  // "BF16"
std::optional<DType> dtype_from_safetensors(std::string_view name);
std::string_view torch_name(DType dtype);                      // "bfloat16"
std::optional<DType> dtype_from_torch(std::string_view name);  // with or without "torch."

inline float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Round to nearest even; NaN stays NaN.
inline uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float f16_to_float(uint16_t bits);
// Round to nearest even; too large is infinite, NaN stays NaN.
uint16_t float_to_f16(float value);

}  // namespace tandem::model
