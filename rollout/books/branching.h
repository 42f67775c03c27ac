// Branching of episodes that share a common beginning (the trunk): which episodes, after which turn, with which seeds.
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

// The trunk that an episode begins with.
struct TrunkTerms {
  uint64_t family = 0;  // the first episode of those that share it
  uint64_t seed = 0;    // what it draws until the trunk is over
  uint32_t turn = 1;    // with which that is, from 1
  friend bool operator==(const TrunkTerms&, const TrunkTerms&) = default;
};

// The part of a trajectory that its family shares, once it has reached the end of its trunk.
struct SharedTrunk {
  uint64_t family = 0;
  uint32_t tokens = 0;  // of the trajectory, from its beginning; 0: there is no trunk
  friend bool operator==(const SharedTrunk&, const SharedTrunk&) = default;
};

// The trunk of an episode in a training group of `size` episodes, the first of which is `first`. Empty where the plan
// has no branches, or the episode is alone in its family.
std::optional<TrunkTerms> trunk_of(const RunPlan& plan, uint64_t first, int size, uint64_t episode);

}  // namespace tandem::rollout
