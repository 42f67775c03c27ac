// The held-out measurements of a run: before and after, sampled and greedy, in all and by kind.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "dashboard/statistics.h"
#include "rollout/books/ledger.h"

namespace tandem::dashboard {

enum class Decoding : uint8_t { kSampled, kGreedy };

// Scores of the same tasks, in the order of kind and seed.
struct Heldout {
  struct Task {
    std::string kind;
    uint64_t seed = 0;
    friend auto operator<=>(const Task&, const Task&) = default;
  };
  std::vector<Task> tasks;
  std::vector<TaskScore> before, after;  // parallel to `tasks`

  Heldout of_kind(const std::string& kind) const;
};

// A measurement during training, of the model after a step.
struct HeldoutDuring {
  uint64_t step = 0;
  uint64_t last_version = 0;  // of the weights that sampled any of it
  std::vector<TaskScore> sampled, greedy;
};

// Gathered episode by episode.
class HeldoutScores {
 public:
  void add(const rollout::EpisodeRecord& episode);
  Heldout of(Decoding decoding) const;
  // In order of steps; a measurement that is under way has what there is of it.
  std::vector<HeldoutDuring> during() const;

 private:
  struct Pair {
    TaskScore before, after;
  };
  using ByTask = std::map<Heldout::Task, Pair>;
  ByTask sampled_, greedy_;
  struct During {
    uint64_t last_version = 0;
    std::map<Heldout::Task, TaskScore> sampled, greedy;
  };
  std::map<uint64_t, During> during_;  // by step
};

// {before, after, gain, during: [{step, last_version, sampled, greedy}], greedy: {before, after, gain}, kinds: {kind:
// {before, after, greedy_before, greedy_after}}, floors}.
Json describe_heldout(const HeldoutScores& scores, const std::vector<std::string>& kinds, const Json& floors);

}  // namespace tandem::dashboard
