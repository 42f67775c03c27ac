// How a step passes through its batch: in how many epochs of how many minibatches, each of which is one update of the
// weights.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"

namespace tandem::trainer {

struct BatchUpdates {
  int epochs = 1, minibatches = 1;
  double kl_stop = 0;  // distance from the policy before the step, nats a token, at which the step ends; 0: never
  uint64_t seed = 0;   // of the order of groups
  int count() const { return epochs * minibatches; }
  friend bool operator==(const BatchUpdates&, const BatchUpdates&) = default;
};

// kInvalid names the wrong setting.
Status check(const BatchUpdates& updates);

// The groups of each minibatch of an epoch, ascending: `groups` of them, shuffled by seed, step (from 1) and epoch
// (from 0), then cut into parts that differ by one group at most. Of fewer groups than minibatches each has a part of
// its own.
std::vector<std::vector<size_t>> minibatches_of(const BatchUpdates& updates, size_t groups, uint64_t step, int epoch);

}  // namespace tandem::trainer
