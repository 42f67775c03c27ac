#include "model/dtype.h"

#include <array>

namespace tandem::model {
namespace {

struct Names {
  DType dtype;
  int bytes;
  std::string_view safetensors;
  std::string_view torch;
};

constexpr std::array kNames = {
    Names{DType::kBool, 1, "BOOL", "bool"},
    Names{DType::kU8, 1, "U8", "uint8"},
    Names{DType::kI8, 1, "I8", "int8"},
    Names{DType::kU16, 2, "U16", "uint16"},
    Names{DType::kI16, 2, "I16", "int16"},
    Names{DType::kU32, 4, "U32", "uint32"},
    Names{DType::kI32, 4, "I32", "int32"},
    Names{DType::kU64, 8, "U64", "uint64"},
    Names{DType::kI64, 8, "I64", "int64"},
    Names{DType::kF8E4M3, 1, "F8_E4M3", "float8_e4m3fn"},
    Names{DType::kF8E5M2, 1, "F8_E5M2", "float8_e5m2"},
    Names{DType::kF8E8M0, 1, "F8_E8M0", "float8_e8m0fnu"},
    Names{DType::kF16, 2, "F16", "float16"},
    Names{DType::kBF16, 2, "BF16", "bfloat16"},
    Names{DType::kF32, 4, "F32", "float32"},
    Names{DType::kF64, 8, "F64", "float64"},
};

const Names& names_of(DType dtype) { return kNames[static_cast<size_t>(dtype)]; }

}  // namespace

int bytes_of(DType dtype) { return names_of(dtype).bytes; }
std::string_view safetensors_name(DType dtype) { return names_of(dtype).safetensors; }
std::string_view torch_name(DType dtype) { return names_of(dtype).torch; }

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  for (const Names& names : kNames) {
    if (names.safetensors == name) return names.dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_torch(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  for (const Names& names : kNames) {
    if (names.torch == name) return names.dtype;
  }
  return std::nullopt;
}

float f16_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // subnormal or zero
  return sign ? -magnitude : magnitude;
}

uint16_t float_to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 2^16 and more
  // Below 2^-14 numbers are multiples of 2^-24: adding a half makes fp32 round to those.
  if (magnitude < 0x38800000u) {
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3f000000u));
  }
  const uint32_t even = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - (112u << 23) + 0xfffu + even) >> 13));
}

}  // namespace tandem::model
