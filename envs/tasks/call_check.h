// Checks by tests of a Python function that never meet it.
//
// Thread safety: that of the runner.
#pragma once

#include "envs/tasks/runner.h"
#include "envs/tasks/task.h"
#include "envs/tasks/term.h"

namespace tandem::envs {

// See CallCheck. Values travel as Python literals; a result that is none counts as a failure.
Result<Term> run_calls(const CallCheck& check, const Files& left_behind, const Runner& runner);

}  // namespace tandem::envs
