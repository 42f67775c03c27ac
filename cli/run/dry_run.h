// `tandem run --dry-run`: what a run would do, and what it would take.
#pragma once

#include <optional>
#include <string>

#include "base/config.h"
#include "base/json.h"
#include "run/config.h"
#include "run/disk.h"
#include "run/memory.h"
#include "run/topology.h"

namespace tandem::cli {

struct DryRun {
  const run::RunConfig& config;
  const Schema& schema;
  const run::Topology& topology;
  std::string tasks;  // in words
  const Json& memory;
  const run::MemoryNeed& memory_needed;  // on this machine
  const MemoryRoom& memory_here;
  std::string memory_lack;                // empty: there is enough
  std::optional<run::DiskGrowth> growth;  // none: of a tiny model, which there is not yet
  fs::path model;                         // empty: the same
};

// Tries the rewards on a sample episode, asks the registries of packages and a teacher behind an endpoint before it
// prints; what fails is returned, but for a teacher that does not answer now, which is printed.
Status print_dry_run(const DryRun& plan, bool json);

}  // namespace tandem::cli
