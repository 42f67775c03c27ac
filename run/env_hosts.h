// The environment servers of a run, as env.hosts and env.key of its config name them.
#pragma once

#include <string>
#include <vector>

#include "rollout/worker.h"
#include "run/config.h"
#include "run/layout.h"

namespace tandem::run {

inline constexpr std::string_view kLocalHost = "local";  // the run's own server, on the machine that it is started on

// kInvalid for what is neither "local" nor tcp://HOST:PORT nor ipc://PATH.
Status check_env_address(const std::string& address);

// kInvalid where the list is empty or too long, names an address twice or one that is none, or leads beyond this
// machine without a key.
Status check_env_hosts(const RunConfig& config);

bool has_local_env(const RunConfig& config);

// In the order of the list. Reads the key.
Result<std::vector<rollout::EnvAddress>> env_addresses(const RunConfig& config, const RunLayout& layout);

// Asks every host whether it can serve the run in `run_dir`, which is written already. kUnfit, naming the host and what
// it says, where one cannot.
Status greet_env_hosts(const RunConfig& config, const fs::path& run_dir);

// Tells every host that the run is over, so that it lets go of what rollouts that were killed still have there. One
// that cannot be told lets go in time.
void leave_env_hosts(const RunConfig& config, const fs::path& run_dir);

}  // namespace tandem::run
