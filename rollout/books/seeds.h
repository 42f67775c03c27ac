// Names of the ledger's random streams: derive_seed(seed, {stream, item}).
//
// A changed number changes every run.
#pragma once

#include <cstdint>

namespace tandem::rollout {

inline constexpr uint64_t kSampleStream = 3;          // of an episode: what is drawn for its tokens
inline constexpr uint64_t kBranchStream = 5;          // of a trunk: the turn that it ends with
inline constexpr uint64_t kTaskStream = 7;            // of a group: its task, where tasks are made from seeds
inline constexpr uint64_t kRewardShuffleStream = 11;  // of a step: the control that permutes rewards

}  // namespace tandem::rollout
