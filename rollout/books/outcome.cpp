#include "rollout/books/outcome.h"

#include <fmt/format.h>

namespace tandem::rollout {

Result<Outcome> outcome_from(std::string_view name) {
  for (size_t i = 0; i < kOutcomeNames.size(); ++i) {
    if (kOutcomeNames[i] == name) return static_cast<Outcome>(i);
  }
  return fail(Status::invalid(fmt::format("\"{}\" is not an outcome", name)));
}

}  // namespace tandem::rollout
