// How many rollouts, environment servers and relays each machine of a run with hosts has: run.topology, or an equal
// share.
//
// Pure.
#pragma once

#include <string>
#include <vector>

#include "run/config.h"

namespace tandem::run {

struct Share {
  std::string host;  // an entry of run.hosts, or kLocalHost
  int rollouts = 0, envs = 0, relays = 0;
};

// In the order of run.hosts. Without run.topology rollouts and relays are dealt out one by one, and every host that has
// a rollout has an environment server beside it. kInvalid, naming the entry, where run.topology names an unknown host
// or role, says a thing twice, or does not place rollout.workers rollouts, run.relays relays and at least one
// environment server.
Result<std::vector<Share>> spread_of(const RunConfig& config);

Status check_topology(const RunConfig& config);

// The name of a host in the run's directory and for people: "10.0.0.5:7070".
std::string name_of_host(const std::string& address);

}  // namespace tandem::run
