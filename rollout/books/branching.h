// Episodes of a group that begin as one and go on by themselves: which they are, when they part, what they draw by.
//
// A trunk is drawn by the seed of its first episode, whoever samples it; what follows the trunk by the seed of each.
// So an episode that is tried again alone draws the same trunk again, and in a deterministic run has the same tokens,
// whether it went on from another one's trunk or not.
//
// Values and pure functions; thread safety: as any value.
#pragma once

#include <cstdint>
#include <optional>

#include "rollout/books/plan.h"

namespace tandem::rollout {

// What an episode begins as.
struct TrunkTerms {
  uint64_t family = 0;  // the first episode of those that share it
  uint64_t seed = 0;    // what it draws until the trunk is over
  uint32_t turn = 1;    // with which that is, from 1
  friend bool operator==(const TrunkTerms&, const TrunkTerms&) = default;
};

// What a trajectory shares with others of its family, where it has come to the end of its trunk.
struct SharedTrunk {
  uint64_t family = 0;
  uint32_t tokens = 0;  // of the trajectory, from its beginning; 0: there is no trunk
  friend bool operator==(const SharedTrunk&, const SharedTrunk&) = default;
};

// Of an episode of a training group of `size` episodes that begins with `first`. None where the plan has no branches,
// or the episode would be the only one of its family.
std::optional<TrunkTerms> trunk_of(const RunPlan& plan, uint64_t first, int size, uint64_t episode);

}  // namespace tandem::rollout
