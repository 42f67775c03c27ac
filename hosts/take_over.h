// A run's files on its standby, and how the run goes on there.
//
// Before any role is started the run's process copies what was there beforehand (copy_run); log, trajectories and
// checkpoints are copied by the processes that write them (run/standby.h). `tandem run --take-over DIR` makes a run
// directory of the copy: from that moment nothing of the old side comes in any more, hosts obey the new epoch alone,
// and paths of the config are those of the copy.
//
// Thread safety: none needed.
#pragma once

#include <functional>
#include <string>

#include "run/config.h"
#include "standby/replicator.h"

namespace tandem::hosts {

// Returns when all is on the standby's disk; `progress` is told where. kUnfit where the run was taken over.
Status copy_run(const run::RunConfig& config, const fs::path& run_dir, standby::Replicator& standby,
                const std::function<void(const std::string&)>& progress);

struct TakeOver {
  std::string holder;  // where the run goes on, for people
  uint64_t epoch = 0;
};

// Takes the run over whose copy `folder` is; once more where it was taken over already changes nothing. kInvalid where
// it is no copy, has no run yet, where a run is on in it, or it lacks what the run has acknowledged
// without it, unless `accepts_loss`. Hosts that cannot be reached are left out; `progress` is told.
Result<TakeOver> take_over(const fs::path& folder, bool accepts_loss,
                           const std::function<void(const std::string&)>& progress);

// kInvalid where `run_dir` is a copy that was not taken over: what is done in it would be another run.
Status check_is_no_copy(const fs::path& run_dir);

}  // namespace tandem::hosts
