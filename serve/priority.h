// Priority classes of requests.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem::serve {

enum class Priority : uint8_t { kAutocomplete, kInteractive, kAgent, kBatch };
inline constexpr std::array<std::string_view, 4> kPriorities = {"autocomplete", "interactive", "agent", "batch"};

inline std::string_view name_of(Priority priority) { return kPriorities[static_cast<size_t>(priority)]; }
inline std::optional<Priority> priority_of(std::string_view name) {
  for (size_t i = 0; i < kPriorities.size(); ++i) {
    if (kPriorities[i] == name) return static_cast<Priority>(i);
  }
  return std::nullopt;
}
// vLLM's integers, where lower goes first.
inline Priority priority_of_number(int number) {
  if (number < 0) return Priority::kAutocomplete;
  if (number == 0) return Priority::kInteractive;
  return number < 10 ? Priority::kAgent : Priority::kBatch;
}

}  // namespace tandem::serve
