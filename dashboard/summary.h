// summary.json: what a run came to, computed from what lies on disk.
//
// Rates are of episodes whose reward is 1. Held-out tasks are told apart by (kind, task seed); an episode without a
// reward (its sandbox was lost, say) is no sample. What only the supervisor can know (exit, restarts, wall time) comes
// from RUN/supervisor.json, whose keys replace the computed ones; what nobody knows is null.
#pragma once

#include "base/json.h"
#include "dashboard/run_files.h"

namespace tandem::dashboard {

Json summarise(const RunFiles& run);

// Phases of one role's time in seconds from the figures that it reports: "generate", "tools", "train", "sync", "save",
// "idle". A rollout's "tools" and "sync" are waits of single episodes and of weights on their way: they overlap with
// the rest of it, and an environment's "tools" are of all its threads together.
Json phases_of(const Json& role_metrics);

}  // namespace tandem::dashboard
