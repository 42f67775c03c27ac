// Runs of a job on this machine, one after another, under the rules of launch/verdict.h.
//
// A signal to this process goes to the run, and is the end of the job: what a person stopped is not started again.
//
// Thread safety: one at a time in a process.
#pragma once

#include "launch/job.h"

namespace tandem::cli {

// Ends with the exit code of the first run that did not come to its end; the rest is not begun. Lines of what happened
// go to stderr and to RUN/job.log. `quiet`: what the runs print on stdout is left out.
Result<int> run_here(const launch::Job& job, bool quiet);

}  // namespace tandem::cli
