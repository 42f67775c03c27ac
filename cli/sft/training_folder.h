// The folder beside a model that `tandem sft` trains, OUT.work: what the training began with, so that it goes on with
// nothing else.
#pragma once

#include "base/folder_lock.h"
#include "cli/sft/sft_config.h"

namespace tandem::cli {

// The folder of the training, held by this process until the lock goes. Prepared for one that begins, found for
// one that goes on. kUnfit where another process holds it, kExists where there is a training and `resume` is false,
// kInvalid where it began with another config.
Result<FolderLock> open_training_folder(bool resume, const SftConfig& config, const Schema& schema,
                                        const fs::path& folder);

// What is left of a training that has ended: how it went, and nothing to go on with.
void conclude_training(const fs::path& folder);

// `out` is there, and somebody wants to go on with its training: that of this config, or another's, which is refused.
Result<int> training_has_ended(const SftConfig& config, const Schema& schema, const fs::path& folder);

}  // namespace tandem::cli
