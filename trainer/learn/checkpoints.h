// Checkpoints of a training in its folder: FOLDER/checkpoints/step_N, the newest few of them, and a link `latest`.
//
// The learner defines their content (learner.h). A checkpoint is whole or absent.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "base/file.h"

namespace tandem::trainer {

// Whole checkpoints in ascending order of step.
std::vector<std::pair<uint64_t, fs::path>> checkpoints_of(const fs::path& folder);

fs::path checkpoint_path(const fs::path& folder, uint64_t step);

// Call after checkpoint `step` was saved. Points `latest` at it, and removes all checkpoints but the newest `kept`,
// that of step `needed`, and the targets of links.
void keep_newest_checkpoints(const fs::path& folder, uint64_t step, size_t kept, uint64_t needed);

// Targets of the links in FOLDER/checkpoints, as whole paths.
std::set<fs::path> linked_checkpoints(const fs::path& folder);

// Removes partial checkpoints of processes that were killed while saving.
void sweep_unfinished(const fs::path& folder);

}  // namespace tandem::trainer
