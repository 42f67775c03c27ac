#include "chaos/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>

#include "base/text.h"

namespace tandem::chaos {

namespace {
constexpr std::array<std::string_view, 7> kNames = {"kill", "stop", "drop", "delay", "duplicate", "corrupt", "disk"};
}

std::string_view to_string(Kind kind) { return kNames[static_cast<size_t>(kind)]; }

std::vector<std::string> kind_names() { return {kNames.begin(), kNames.end()}; }

Result<Kind> kind_named(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<Kind>(i);
  return fail(Status::invalid(fmt::format("\"{}\" is no kind of fault; there are {}", name, fmt::join(kNames, ", "))));
}

Fault Schedule::next() {
  Fault fault;
  fault.after = -std::log(1 - random_.uniform()) * every_;
  fault.kind = kinds_[random_.below(kinds_.size())];
  fault.target = random_.bits();
  return fault;
}

}  // namespace tandem::chaos
