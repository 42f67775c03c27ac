// The environment servers of a run, as env.hosts and env.key of its config name them.
#pragma once

#include <optional>

#include "run/topology.h"
#include "wire/secret.h"

namespace tandem::run {

bool has_local_env(const RunConfig& config);

// The secret of env.key, where the config has one. Reads the file.
Result<std::optional<wire::Secret>> env_secret(const RunConfig& config);

// Asks every host whether it can serve the run in `run_dir`, which is written already. kUnfit, naming the host and what
// it says, where one cannot.
Status greet_env_hosts(const RunConfig& config, const fs::path& run_dir);

// Tells every host that the run is over, so that it releases episodes of killed rollouts. A host that cannot be reached
// releases them after a timeout.
void leave_env_hosts(const RunConfig& config, const fs::path& run_dir);

}  // namespace tandem::run
