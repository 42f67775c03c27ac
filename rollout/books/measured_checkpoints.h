// Links in RUN/checkpoints by held-out success: `measuring` names the checkpoint of the step that is being measured,
// `best` that of the step with the highest success so far; of equal ones the later. What a link names is kept
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

// Updates both links from the books, each atomically. Only steps with a checkpoint can be the best. The same call again
// changes nothing. Errors are logged: the run does not depend on the links.
void link_measured_checkpoints(const fs::path& run_dir, const Ledger& ledger);

// {"step", "success", "samples", "greedy", "last_version"} of the newest complete measurement; null where there is
// none.
Json newest_measurement(const Ledger& ledger);

}  // namespace tandem::rollout
