// Subcommands of `tandem runs`, one function each; they return the exit code.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"

namespace tandem::cli {

Result<int> list_runs(const std::string& folder, bool json);
Result<int> compare_two_runs(const std::string& before, const std::string& after, bool json);

struct PruneOptions {
  std::string folder;
  std::vector<std::string> keep, drop;
  std::string older_than;
  bool dry_run = false, json = false;
};
Result<int> prune_runs(const PruneOptions& options);

}  // namespace tandem::cli
