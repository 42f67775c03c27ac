// Selects files of a run that may be removed, and removes them.
//
// A run that goes on by `--resume` needs its ledger, its newest checkpoint and its trajectories: of a run that is not
// done these stay, whatever is asked for. What a report, `tandem runs` and `tandem episodes` without tokens read always
// stays. So do `export/`, the checkpoints that `latest` and `best` name, and what the model of another run lies in.
//
// Each thing is first renamed to a hidden name and then removed: a crash leaves it whole, or under a name that the next
// pruning removes.
//
// Thread safety: none needed. Two processes never prune one run, since each holds its directory.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "archive/entry.h"

namespace tandem::archive {

// Ages count from the last sign of a run, in seconds.
struct PruneRule {
  std::optional<size_t> checkpoints;   // the newest so many of each run stay; at least 1
  std::optional<double> trajectories;  // of runs that are done and younger than this they stay
  std::optional<double> logs;          // the same for logs/ and tb/
  size_t runs = 0;                     // the newest so many runs are left alone altogether
  std::set<State> drop;                // runs of these states go whole
  double drop_after = 0;               // .. where they are this old

  bool asks_for_nothing() const { return !checkpoints && !trajectories && !logs && drop.empty(); }
};

// An argument of --keep: "checkpoints=2", "trajectories=7d", "logs=30d", "runs=10". kInvalid names what is wrong, with
// the nearest word.
Status add_keep(PruneRule& rule, std::string_view text);
// An argument of --drop: "failed", "killed", "interrupted", "empty". kInvalid as above.
Status add_drop(PruneRule& rule, std::string_view text);
// "90s", "15m", "12h", "7d", "2w" in seconds; kInvalid says which forms there are.
Result<double> age_from(std::string_view text);

struct Removal {
  fs::path path;
  uint64_t bytes = 0;
  std::string why;  // "not of the newest 2"
};

// Folders that contain the models of `runs`, as whole paths: RUN/model is a link to one.
std::set<fs::path> models_of(const std::vector<fs::path>& runs);

// Files of a run to remove at `now` (seconds since 1970), except those that contain one of `needed`. Reads only.
// Nothing of a run that is on, or that cannot be read.
std::vector<Removal> removals_of(const RunEntry& run, const PruneRule& rule, const std::set<fs::path>& needed,
                                 double now);

// Removes it, as the run is once its directory is held. kInvalid, with nothing removed, where a process has the run.
// Returns what went.
Result<std::vector<Removal>> prune(const fs::path& run_dir, const PruneRule& rule, const std::set<fs::path>& needed,
                                   double now);

// Removes what an earlier pruning that was cut short left in `folder`, which is a run or holds runs.
void sweep_pruned(const fs::path& folder);

}  // namespace tandem::archive
