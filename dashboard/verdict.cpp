#include "dashboard/verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "dashboard/heldout.h"

namespace tandem::dashboard {
namespace {

// Fewer may all lack a signal by chance.
constexpr uint64_t kTellingGroups = 4;

struct Signals {
  uint64_t groups = 0, with_signal = 0;
};
Signals signals_of(const RunFiles& run) {
  Signals signals;
  const auto& plan = run.ledger.plan();
  const bool is_of_groups =
      !is_of_tokens(plan.advantage) &&
      std::ranges::none_of(plan.advantages, [](const auto& part) { return is_of_tokens(part.second.advantage); });
  if (plan.all_groups || !is_of_groups) return signals;  // a teacher or a critic gives it
  for (const Json& line : run.steps) {
    signals.groups += static_cast<uint64_t>(number_at(line, "groups"));
    signals.with_signal += static_cast<uint64_t>(number_at(line, "groups_with_signal"));
  }
  return signals;
}
std::string without_signal(uint64_t groups) {
  return fmt::format("none of {} groups had a signal: all rewards of each were the same, and nothing was learned",
                     groups);
}

}  // namespace

std::vector<std::string> lacks_of(const RunFiles& run) {
  std::vector<std::string> lacks;
  const auto& ledger = run.ledger;
  if (ledger.steps_trained() > 0 && run.totals.trained_on.empty())
    lacks.emplace_back("no training episode had a reward: every step trained on nothing");
  const Json heldout = describe_heldout(run.totals.heldout, ledger.plan().kinds, run.floors);
  if (number_at(run.config.value("tasks", Json::object()), "heldout") > 0) {
    for (const char* phase : {"before", "after"}) {
      const Json measured = heldout.value(phase, Json());
      if (measured.is_null() || number_at(measured, "n_tasks") == 0)
        lacks.push_back(fmt::format("no held-out episode {} training had a reward: there is no success rate", phase));
    }
  }
  const Signals signals = signals_of(run);
  if (lacks.empty() && signals.groups >= kTellingGroups && signals.with_signal == 0)
    lacks.push_back(without_signal(signals.groups));
  return lacks;
}

std::string note_of(const RunFiles& run) {
  const Signals signals = signals_of(run);
  return signals.groups > 0 && signals.with_signal == 0 ? without_signal(signals.groups) : "";
}

}  // namespace tandem::dashboard
