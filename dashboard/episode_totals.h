// Totals of a run's episodes for summary and report, computed in one pass.
//
// Memory: four numbers and at most four records for each held-out task, whatever the number of episodes.
//
// Thread safety: none needed; values.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "dashboard/heldout.h"
#include "rollout/books/ledger.h"

namespace tandem::dashboard {

// The same held-out task before and after training: the first episode of each that has a reward.
struct EpisodePair {
  std::optional<rollout::EpisodeRecord> before, after;
};
struct TaskPairs {
  EpisodePair greedy, sampled;
};

struct EpisodeTotals {
  std::map<rollout::Outcome, uint64_t> outcomes;  // of episodes that were trained or dropped
  uint64_t prompt_tokens = 0, sampled_tokens = 0, steals = 0, retokenised_turns = 0, compactions = 0;
  uint64_t branches = 0, inherited_tokens = 0, inherited_calls = 0;  // of episodes that had a trunk; of those numbers
  std::map<std::string, uint64_t> trained_on;                        // training episodes with a reward, by kind
  HeldoutScores heldout;
  std::map<std::string, std::map<uint64_t, TaskPairs>> pairs;  // by kind and task seed

  // Episodes are added in order of admission.
  void add(const rollout::EpisodeRecord& episode);
};

}  // namespace tandem::dashboard
