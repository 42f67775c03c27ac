// Where a run that is on is told of hosts.
#pragma once

#include <string>

#include "base/status.h"

namespace tandem::cli {

// The address of the listener of `run`: a run directory, or the address itself. kUnavailable where the run has no hosts
// or is not on.
Result<std::string> run_listener_address(const std::string& run);

}  // namespace tandem::cli
