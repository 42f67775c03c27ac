#include "model/tensor_numbers.h"

#include <fmt/format.h>

#include <cstring>
#include <type_traits>

namespace tandem::model {

using kernels::bf16;

namespace {

void assign(bf16& target, float value) { target = kernels::to_bf16(value); }
void assign(float& target, float value) { target = value; }

// `Element` is how the numbers lie in the file, `to_float` what they are.
template <typename Element, typename T, typename ToFloat>
void convert(std::span<const std::byte> bytes, std::span<T> target, const ToFloat& to_float) {
  for (size_t i = 0; i < target.size(); ++i) {
    Element element;
    std::memcpy(&element, bytes.data() + i * sizeof element, sizeof element);
    assign(target[i], to_float(element));
  }
}

template <typename T>
Status copy(const TensorView& tensor, std::string_view name, std::span<T> target) {
  if (tensor.elements() != static_cast<int64_t>(target.size())) {
    return Status::invalid(
        fmt::format("tensor {} has {} elements, expected {}", name, tensor.elements(), target.size()));
  }
  switch (tensor.dtype) {
    case DType::kBF16:
      if constexpr (std::is_same_v<T, bf16>)
        std::memcpy(target.data(), tensor.bytes.data(), target.size_bytes());
      else
        convert<bf16>(tensor.bytes, target, [](bf16 value) { return kernels::to_float(value); });
      return {};
    case DType::kF32:
      convert<float>(tensor.bytes, target, [](float value) { return value; });
      return {};
    case DType::kF16:
      convert<uint16_t>(tensor.bytes, target, f16_to_float);
      return {};
    default:
      return Status::invalid(fmt::format("tensor {} is {}; bf16, f16, f32 and f8_e4m3 with scales of blocks are read",
                                         name, safetensors_name(tensor.dtype)));
  }
}

// Numbers whose bits under `exponent` are all set.
template <typename Bits>
size_t count_with_exponent(std::span<const std::byte> bytes, Bits exponent) {
  size_t count = 0;
  for (size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + at, sizeof bits);
    count += (bits & exponent) == exponent;
  }
  return count;
}

}  // namespace

Status copy_numbers(const TensorView& tensor, std::string_view name, std::span<float> target) {
  return copy(tensor, name, target);
}
Status copy_numbers(const TensorView& tensor, std::string_view name, std::span<bf16> target) {
  return copy(tensor, name, target);
}

size_t count_not_finite(std::span<const float> numbers) {
  return count_with_exponent<uint32_t>(std::as_bytes(numbers), 0x7f800000);
}
size_t count_not_finite(std::span<const bf16> numbers) {
  return count_with_exponent<uint16_t>(std::as_bytes(numbers), 0x7f80);
}
size_t count_not_finite(const TensorView& tensor) {
  switch (tensor.dtype) {
    case DType::kF64:
      return count_with_exponent<uint64_t>(tensor.bytes, 0x7ff0000000000000);
    case DType::kF32:
      return count_with_exponent<uint32_t>(tensor.bytes, 0x7f800000);
    case DType::kF16:
      return count_with_exponent<uint16_t>(tensor.bytes, 0x7c00);
    case DType::kBF16:
      return count_with_exponent<uint16_t>(tensor.bytes, 0x7f80);
    case DType::kF8E4M3:  // has no infinity, and NaN alone there
      return count_with_exponent<uint8_t>(tensor.bytes, 0x7f);
    case DType::kF8E5M2:
      return count_with_exponent<uint8_t>(tensor.bytes, 0x7c);
    case DType::kF8E8M0:
      return count_with_exponent<uint8_t>(tensor.bytes, 0xff);
    default:
      return 0;
  }
}

}  // namespace tandem::model
