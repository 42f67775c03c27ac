#include "trainer/learn/buffers.h"

#include <algorithm>
#include <cstdlib>

namespace tandem::trainer {
namespace {

template <typename Byte>
model::BasicSlice<Byte> slice(const SliceSpec& spec, std::span<Byte> bytes) {
  return {spec.name, {static_cast<int64_t>(spec.elements)}, spec.dtype, spec.device, bytes};
}

}  // namespace

size_t bytes_of(std::span<const SliceSpec> specs) {
  size_t bytes = 0;
  for (const SliceSpec& spec : specs) bytes += spec.bytes();
  return bytes;
}

Buffers::Buffers(std::span<const SliceSpec> specs) {
  for (const SliceSpec& spec : specs) add(spec);
}

Slice Buffers::add(const SliceSpec& spec) {
  if (contains(spec.name)) std::abort();
  const size_t bytes = spec.elements * static_cast<size_t>(model::bytes_of(spec.dtype));
  held_.push_back({spec, Buffer<std::byte>(bytes)});
  return slice(spec, std::span(held_.back().memory.data(), bytes));
}

const Buffers::Held* Buffers::find(std::string_view name) const {
  const auto found = std::ranges::find_if(held_, [&](const Held& held) { return held.spec.name == name; });
  return found == held_.end() ? nullptr : &*found;
}

bool Buffers::contains(std::string_view name) const { return find(name) != nullptr; }

Slice Buffers::at(std::string_view name) {
  const Held* const held = find(name);
  if (held == nullptr) std::abort();
  return slice(held->spec, std::span(const_cast<std::byte*>(held->memory.data()), held->memory.size()));
}

ConstSlice Buffers::at(std::string_view name) const { return const_cast<Buffers*>(this)->at(name); }

std::vector<Slice> Buffers::all() {
  std::vector<Slice> slices;
  for (const Held& held : held_) slices.push_back(at(held.spec.name));
  return slices;
}

size_t Buffers::bytes() const {
  size_t bytes = 0;
  for (const Held& held : held_) bytes += held.spec.bytes();
  return bytes;
}

}  // namespace tandem::trainer
