// Where a run that is on is told of hosts.
#pragma once

#include <string>

#include "base/status.h"

namespace tandem::cli {

// The address of the desk of `run`: a run directory, or the address itself. kUnavailable where the run has no hosts or
// is not on.
Result<std::string> desk_of(const std::string& run);

}  // namespace tandem::cli
