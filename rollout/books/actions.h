// Actions of the ledger after an event. Values; thread safety: as any value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rollout/books/branching.h"
#include "rollout/books/events.h"
#include "rollout/books/truncation.h"

namespace tandem::rollout {

struct LeaseTerms {
  EpisodeKey key;
  uint64_t group = 0;
  std::string kind, split;
  uint64_t task_seed = 0, sample_seed = 0;
  float temperature = 1;
  uint64_t min_version = 0, max_version = 0;
  uint32_t claims = 0;                   // granted for this attempt: each makes offers of before void
  std::optional<TrunkTerms> trunk = {};  // that it begins as
  Truncation truncation = {};
};
struct Grant {
  std::string worker;
  std::vector<LeaseTerms> leases;
};
struct Acknowledge {  // a commit took effect, or had already
  std::string worker;
  EpisodeKey key;
};
struct Revoke {
  std::string worker;
  EpisodeKey key;
};
struct BatchEntry {
  EpisodeKey key;
  uint64_t group = 0;
  double advantage = 0;
  // The learned reward of each message of the model, where the trainer makes advantages of tokens; part of the above.
  std::vector<double> turn_rewards = {};
  std::string kind = {};                       // of the task, where some kinds have advantages of their own; else empty
  std::map<std::string, double> metrics = {};  // of the episode, where the plan asks for them
};
struct TrainBatch {
  uint64_t step = 0;
  std::vector<BatchEntry> entries;
};
struct Steal {  // `thief` has room and there is nothing to grant: `victim` may hand over up to `count`
  std::string victim, thief;
  uint32_t count = 0;
};
struct Transferred {  // the episode is now `to`'s
  std::string from, to;
  EpisodeKey key;
  uint32_t claims = 0;  // with this one
};
struct ClaimRefused {  // another rollout has the episode
  std::string worker;
  EpisodeKey key;
  uint32_t claims = 0;
};
struct Compare {  // the group is complete: a judge is to compare these episodes
  uint64_t group = 0;
  struct Candidate {
    EpisodeKey key;
    std::string shown;
  };
  std::vector<Candidate> candidates;
};
struct StepDone {  // for the record: a batch was trained
  uint64_t step = 0;
};
struct HeldoutBegun {  // held-out tasks are measured beside the training, as this step has left the model
  uint64_t step = 0;
};
struct HeldoutDone {  // the measurement of this step is complete
  uint64_t step = 0;
};
struct PhaseDone {
  std::string phase;
};
struct Finish {  // nothing more is to be done
  std::string reason;
};
using Action = std::variant<Grant, Acknowledge, Revoke, Steal, Transferred, ClaimRefused, TrainBatch, Compare, StepDone,
                            HeldoutBegun, HeldoutDone, PhaseDone, Finish>;

}  // namespace tandem::rollout
