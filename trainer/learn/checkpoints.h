// Checkpoints of a training in its folder: FOLDER/checkpoints/step_N, the newest few of them, and a link `latest`.
//
// What lies in one is the learner's (learner.h); each is whole or not there.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/file.h"

namespace tandem::trainer {

// Those that are whole, by step; the newest is the last.
std::vector<std::pair<uint64_t, fs::path>> checkpoints_of(const fs::path& folder);

fs::path checkpoint_path(const fs::path& folder, uint64_t step);

// After checkpoint `step` was saved: points `latest` at it, and removes all but the newest `kept`.
void keep_newest_checkpoints(const fs::path& folder, uint64_t step, size_t kept);

// Removes what a process that was killed while it saved has left: as large as a checkpoint, and of no use.
void sweep_unfinished(const fs::path& folder);

}  // namespace tandem::trainer
