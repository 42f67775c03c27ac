// Which kinds of task the next batch is drawn from.
//
// Kinds have equal shares, with two exceptions: a kind that always succeeds has half a share, and a kind that never
// succeeds a quarter, so that its first successes are noticed. A batch is stratified: counts differ from their
// expectation by less than one.
//
// A function of the seed and of the batches observed, in order; value type.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace tandem::rollout {

class Curriculum {
 public:
  Curriculum(std::vector<std::string> kinds, uint64_t seed);

  // `count` kinds for batch number `batch`, shuffled.
  std::vector<std::string> draw(uint64_t batch, int count) const;

  // Takes in the mean reward of one group of a batch.
  void observe(const std::string& kind, double success);

  // The observations, for a snapshot. load() restores them into a curriculum of the same kinds and seed.
  Json save() const;
  void load(const Json& saved);

 private:
  struct Kind {
    std::string name;
    double success = 0.3;  // running mean, a guess at first
    int groups = 0;
  };
  std::vector<Kind> kinds_;
  uint64_t seed_;
};

}  // namespace tandem::rollout
