// Names of the random streams of supervised training: derive_seed(seed, {stream, item}).
//
// A changed number changes every training.
#pragma once

#include <cstdint>

namespace tandem::trainer {

inline constexpr uint64_t kDemonstrationTaskStream = 1;   // of a demonstration: its task
inline constexpr uint64_t kDemonstrationNoiseStream = 2;  // of a demonstration: the noise in its calls
inline constexpr uint64_t kTinyBatchStream = 3;           // of the tiny model: the samples of its batches
inline constexpr uint64_t kEpochOrderStream = 4;          // of an epoch: the order of its samples

}  // namespace tandem::trainer
