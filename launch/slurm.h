// The batch file of a job for Slurm, and what sbatch answers.
//
// The file is complete: `sbatch FILE` submits it, and submitting it again goes on where its runs stopped. The script
// runs `tandem run` on the first host of the job, not as a step: Slurm signals every process of a step, and only the
// supervisor must hear that the run is to stop. A step of no work waits for the notice of a preemption, which Slurm
// gives to steps alone.
//
// With several nodes a step of one `tandem host` a node lends them to the run. They get its key over their standard
// input: it is in no argument, variable or shared folder. A node that fails is a host that is lost.
//
// Thread safety: none needed; values.
#pragma once

#include <string>
#include <vector>

#include "launch/job.h"

namespace tandem::launch {

struct SlurmOptions {
  std::string time;  // as sbatch takes it; empty: the partition's
  std::string partition, account;
  int at_once = 0;                 // runs of an array; 0: all
  int nodes = 1;                   // machines of each run: the run on the first, a `tandem host` on every one
  std::vector<std::string> extra;  // further options of sbatch, "--qos=high"
};

// kInvalid where an option cannot stand in such a file.
Result<std::string> render_slurm(const Job& job, const SlurmOptions& options);

// The number of the job that `sbatch --parsable` printed. kCorrupt where it printed none.
Result<std::string> job_of_sbatch(std::string_view output);

}  // namespace tandem::launch
