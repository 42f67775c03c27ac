// The streams that the ledger derives from the seed of a run, by number: derive_seed(seed, {stream, what}).
//
// A number is part of what a run is: another one is another run.
#pragma once

#include <cstdint>

namespace tandem::rollout {

inline constexpr uint64_t kSampleStream = 3;          // of an episode: what is drawn for its tokens
inline constexpr uint64_t kTaskStream = 7;            // of a group: its task, where tasks are made from seeds
inline constexpr uint64_t kRewardShuffleStream = 11;  // of a step: the control that permutes rewards

}  // namespace tandem::rollout
