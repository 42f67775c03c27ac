// Links in RUN/checkpoints by what held-out tasks gave: `measuring` names the checkpoint of the step that is measured
// now, `best` that of the step with the most success so far, of equals the later. What a link names is kept
// (trainer/learn/checkpoints.h).
//
// Thread safety: none needed; the coordinator alone makes these links.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/file.h"
#include "rollout/books/ledger.h"

namespace tandem::rollout {

// The complete measurement with the most success; nothing where there is none. `is_there` says which steps count.
std::optional<uint64_t> best_step(const Ledger& ledger, const std::function<bool(uint64_t)>& is_there);

// Makes both links say what the books say, each replaced in one step. Only steps with a checkpoint can be the best. The
// same call again changes nothing. What cannot be written is logged: a link is no part of the run.
void link_measured_checkpoints(const fs::path& run_dir, const Ledger& ledger);

// {"step", "success", "samples", "greedy", "last_version"} of the newest complete measurement; null where there is
// none.
Json newest_measurement(const Ledger& ledger);

}  // namespace tandem::rollout
