// The replicator of a process to the run's standby: which host, and which files of the run directory this process
// copies.
//
// Thread safety: none needed.
#pragma once

#include <memory>

#include "run/config.h"
#include "run/layout.h"
#include "standby/replicator.h"
#include "wire/peer.h"

namespace tandem::run {

// Copies what `self` writes, from now on. Null where the run has no standby, or `self` writes nothing of its directory.
// `start`: which start of the process this is. The errors are those of reading run.key.
Result<std::unique_ptr<standby::Replicator>> replicator_of(const RunConfig& config, const RunLayout& layout,
                                                           const fs::path& run_dir, const wire::Peer& self,
                                                           uint64_t start);

// Written by the supervisor's process: where files of other places lie in the copy, by the key that names them.
inline constexpr const char* kMovedFile = "standby-paths.json";

}  // namespace tandem::run
