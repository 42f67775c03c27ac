// Splits a list that holds several lists, one behind the other.
//
// Thread safety: functions of their arguments.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

// The parts of `values`: the first begins at 0, the others at `later`, ascending and within the list.
template <typename T>
std::vector<std::span<const T>> split_at(std::span<const T> values, std::span<const uint32_t> later) {
  std::vector<std::span<const T>> parts;
  size_t begin = 0;
  for (const uint32_t end : later) {
    parts.push_back(values.subspan(begin, end - begin));
    begin = end;
  }
  parts.push_back(values.subspan(begin));
  return parts;
}

// Whether each begins behind the one before, and none is empty.
inline bool are_parts(std::span<const uint32_t> later, size_t count) {
  uint32_t before = 0;
  for (const uint32_t begin : later) {
    if (begin <= before || begin >= count) return false;
    before = begin;
  }
  return true;
}

}  // namespace tandem
