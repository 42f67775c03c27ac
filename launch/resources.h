// Resources of a run, from its config and the estimate of its memory (run/memory.h).
//
// Thread safety: none needed; values.
#pragma once

#include "base/json.h"
#include "launch/job.h"
#include "run/config.h"

namespace tandem::launch {

// Where neither the job nor the config says how many cores.
inline constexpr int kDefaultCores = 8;

// `memory` is that of run::memory_of, or empty for a model that is made on the spot. Cores: `cores` where it is not 0,
// else the most threads that the config names for the trainer or all rollouts, else kDefaultCores. Memory: a tenth more
// than the estimate, 128 MiB a process, the caches of the environments, and 256 MiB for each tool call that runs at
// once; tools that take more need a job with more.
Resources resources_of(const run::RunConfig& config, const Json& memory, int cores);

// Values for the threads that the config leaves to the machine, which may have more cores than the job has on each of
// its `nodes`.
std::vector<std::string> thread_overrides(const run::RunConfig& config, int cores, int nodes = 1);

}  // namespace tandem::launch
