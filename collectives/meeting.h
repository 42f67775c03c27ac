// How the ranks of a group on one machine find each other: each listens at `folder`/rank-N and calls those below it,
// and says who it is.
#pragma once

#include <vector>

#include "base/file.h"
#include "collectives/local.h"

namespace tandem::collectives {

// A socket to each other rank, at its number; errors as meet_locally has them.
Result<std::vector<FileDescriptor>> find_ranks(const LocalSettings& settings);

}  // namespace tandem::collectives
