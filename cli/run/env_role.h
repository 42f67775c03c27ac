// The process that runs environments: for one run, or as a host for every run that names it.
#pragma once

#include "envs/server/server.h"
#include "run/config.h"
#include "wire/peer.h"

namespace tandem::cli {

// Serves one run until the coordinator says stop. With the first interrupt it leaves the run: it gets no new episodes,
// and ends with its last one, at the latest after a minute; it ends at once with the second, or where no coordinator is
// there to let it go.
Status run_env_role(const fs::path& run_dir, const run::RunConfig& config, const wire::Peer& self,
                    const wire::Identity& identity, const std::atomic<int>& interrupts);

struct EnvHostSettings {
  std::string address;
  fs::path key;  // made where there is none; may be empty for addresses of this machine
  int threads = 0;
  size_t most_episodes = 256, most_episodes_of_a_run = 0;  // 0: no limit of its own
  size_t warm = 2, most_warm = 16;
  size_t read_cache_mb = 64, beginnings_mb = 256;
  double drain_seconds = 600;
};

// Serves every run whose directory is visible here. `interrupts` counts what asks it to end: with the first it takes no
// new episodes and ends when the last is let go, at the latest after drain_seconds; with the second it ends at once.
Status run_env_host(const EnvHostSettings& settings, const std::atomic<int>& interrupts);

}  // namespace tandem::cli
