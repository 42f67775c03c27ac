// Which episodes of a run are wanted.
//
// Thread safety: none needed; values.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "dashboard/episodes.h"

namespace tandem::archive {

struct StepRange {
  uint64_t first = 0, last = 0;  // both included
};

struct EpisodeChoice {
  std::optional<double> least_reward;  // episodes without a reward do not reach it
  std::optional<StepRange> trained;    // by the step that learned from it
  std::optional<StepRange> sampled;    // by the version of the weights that it began with
  std::string split;                   // "train" or "heldout": all held-out splits; empty: both
  bool best_of_group = false;          // of the others that are wanted: the highest reward of each, the first of equals

  bool takes_all() const { return !least_reward && !trained && !sampled && split.empty() && !best_of_group; }
};

// "4-9", "4-", "-9" or "4". kInvalid says so.
Result<StepRange> step_range(std::string_view text);

// Whether an object of dashboard::describe() is wanted, but for `best_of_group`.
bool matches(const EpisodeChoice& choice, const Json& episode);

// Numbers of the episodes that are wanted. One pass over the log; the errors are those of dashboard::visit_episodes().
Result<std::set<uint64_t>> choose_episodes(const fs::path& run_dir, const rollout::PlanOfConfig& plan_of_config,
                                           const EpisodeChoice& choice);

}  // namespace tandem::archive
