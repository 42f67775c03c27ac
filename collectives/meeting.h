// How the ranks of a group on one machine find each other: each listens at `folder`/rank-N and calls those below it,
// and says who it is.
#pragma once

#include <chrono>
#include <filesystem>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace tandem::collectives {

struct LocalSettings {
  std::filesystem::path folder;  // the same for all ranks, of this group alone; its path at most 80 bytes long
  int rank = 0;
  int ranks = 1;  // 1 to kMostRanks
  std::chrono::milliseconds deadline{10'000};
};

// A socket to each other rank, at its number; errors as meet_locally has them.
Result<std::vector<FileDescriptor>> find_ranks(const LocalSettings& settings);

}  // namespace tandem::collectives
