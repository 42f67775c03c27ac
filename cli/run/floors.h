// Measures the scripted baselines of a run on this machine.
#pragma once

#include <atomic>
#include <span>

#include "base/json.h"
#include "envs/episodes/floors.h"
#include "envs/sandbox/sandbox.h"
#include "envs/server/server.h"

namespace tandem::cli {

// By the name of each floor its mean reward over these tasks; those that cannot be played are left out. Ends soon after
// `cancelled`.
Json play_floors(std::span<const envs::TaskSpec> specs, const envs::MakeTask& make_task, envs::SandboxBackend& backend,
                 const std::atomic<bool>& cancelled);

}  // namespace tandem::cli
