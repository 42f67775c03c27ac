// Demonstrations that a run learns from beside its own episodes: algorithm.demonstrations.
#pragma once

#include "run/config.h"

namespace tandem::cli {

// Writes RUN/demonstrations.jsonl, their tokens by the tokenizer and the chat template of RUN/model, where it is not
// there already. kInvalid has the mistakes of all files; kCorrupt: the run has begun with it, and it is gone or
// damaged.
Status provide_demonstrations(const run::RunConfig& config, const fs::path& run_dir);

// The same errors before the run begins. Those of the tiny model are found once it is made.
Status check_demonstrations(const run::RunConfig& config);

}  // namespace tandem::cli
