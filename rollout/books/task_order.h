// The order in which the tasks of a finite set are trained on: each once, shuffled, before any comes again.
//
// A function of the seed and of the draws so far; value type.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"

namespace tandem::rollout {

// The number of tasks of a kind in each split.
struct TaskCounts {
  uint64_t train = 0, heldout = 0;
  friend bool operator==(const TaskCounts&, const TaskCounts&) = default;
};
using CountsByKind = std::map<std::string, TaskCounts>;

class TaskOrder {
 public:
  TaskOrder(CountsByKind counts, uint64_t seed) : counts_(std::move(counts)), seed_(seed) {}

  // Returns the number of the next training task of `kind`, which has at least one.
  uint64_t next(const std::string& kind);

  // The position, for a snapshot. load() restores it into an order of the same counts and seed.
  Json save() const;
  void load(const Json& saved);

 private:
  struct Progress {
    uint64_t rounds = 0;
    std::vector<uint64_t> left;  // of this round, the next one last
  };
  CountsByKind counts_;
  uint64_t seed_;
  std::map<std::string, Progress> progress_;
};

// The kinds that have training tasks. All of them where `counts` is empty: tasks are then made from seeds.
std::vector<std::string> trainable(const std::vector<std::string>& kinds, const CountsByKind& counts);

}  // namespace tandem::rollout
