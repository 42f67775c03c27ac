// The memory of a training between steps, as named slices: masters, moments, gradients, work space.
//
// A list of `SliceSpec` describes the slices: it both estimates the memory and allocates it. With several ranks, each
// holds its parts under the same names.
//
// Thread safety: none; the owner's.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "model/slice.h"

namespace tandem::trainer {

using model::ConstSlice;
using model::Device;
using model::Slice;

struct SliceSpec {
  std::string name;
  size_t elements = 0;
  model::DType dtype = model::DType::kF32;
  size_t touched = elements;  // that are ever written: the rest of a buffer of the CPU takes no memory
  Device device = Device::kCpu;

  size_t bytes() const { return touched * static_cast<size_t>(model::bytes_of(dtype)); }
};
size_t bytes_of(std::span<const SliceSpec> specs);

class Buffers {
 public:
  Buffers() = default;
  explicit Buffers(std::span<const SliceSpec> specs);

  // Adds a slice of zeros. The name must be new.
  Slice add(const SliceSpec& spec);
  bool contains(std::string_view name) const;
  // Aborts for a name that was not added.
  Slice at(std::string_view name);
  ConstSlice at(std::string_view name) const;
  // In the order in which they were added.
  std::vector<Slice> all();

  // Bytes of all slices, as in their specs.
  size_t bytes() const;
  void clear() { held_.clear(); }

 private:
  struct Held {
    SliceSpec spec;
    Buffer<std::byte> memory;
  };
  const Held* find(std::string_view name) const;
  std::vector<Held> held_;
};

}  // namespace tandem::trainer
