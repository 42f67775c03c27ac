// A named range of numbers on a device: the handle of masters, moments, gradients and weights outside the code that
// computes with them.
//
// A slice owns nothing: it is valid as long as its owner (trainer/learn/buffers.h, model::Weights). Only `host` gives
// memory that this process may read; every other use goes through the device.
//
// Thread safety: as any value; the numbers belong to their owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/formats/bf16.h"
#include "model/dtype.h"

namespace tandem::model {

enum class Device : uint8_t { kCpu, kGpu };  // of a GPU, real or emulated: the process that holds it knows which

// The format of a C++ number.
template <typename T>
constexpr DType dtype_of() {
  using Number = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Number, float>)
    return DType::kF32;
  else if constexpr (std::is_same_v<Number, kernels::bf16>)
    return DType::kBF16;
  else
    return DType::kU8;
}

template <typename Byte>  // std::byte, or const std::byte
struct BasicSlice {
  std::string name;  // of the whole: "masters", "first_moments"
  std::vector<int64_t> shape;
  DType dtype = DType::kF32;
  Device device = Device::kCpu;
  std::span<Byte> bytes;

  operator BasicSlice<const std::byte>() const { return {name, shape, dtype, device, bytes}; }

  size_t elements() const { return bytes.size() / static_cast<size_t>(bytes_of(dtype)); }
  // Elements [first, first + count) in the order of memory, under the same name.
  BasicSlice part(size_t first, size_t count) const {
    const auto size = static_cast<size_t>(bytes_of(dtype));
    return {name, {static_cast<int64_t>(count)}, dtype, device, bytes.subspan(first * size, count * size)};
  }
  // The numbers of a slice of the CPU. Another device or format is a bug of the caller, and ends the process.
  template <typename T>
  auto host() const {
    using Number = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    if (device != Device::kCpu || dtype != dtype_of<T>()) std::abort();
    return std::span<Number>(reinterpret_cast<Number*>(bytes.data()), elements());
  }
};
using Slice = BasicSlice<std::byte>;
using ConstSlice = BasicSlice<const std::byte>;

// A slice over numbers in host memory that somebody else owns.
template <typename T>
auto slice_of(std::string name, std::span<T> values) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  const std::span<Byte> bytes(reinterpret_cast<Byte*>(values.data()), values.size_bytes());
  return BasicSlice<Byte>{std::move(name), {static_cast<int64_t>(values.size())}, dtype_of<T>(), Device::kCpu, bytes};
}

}  // namespace tandem::model
