// Checks by commands: what somebody's own tests say about the files left behind.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "envs/tasks/runner.h"
#include "envs/tasks/task.h"
#include "envs/tasks/term.h"

namespace tandem::envs {

// Files of the check take the place of whatever lies at their paths, be it a folder or a file in place of one. Files
// that tell test runners and interpreters what to do (conftest.py, sitecustomize.py and the like) are as the task began
// with them, or not there.
bool steers_tests(std::string_view path);  // whether a file is one of those
Result<Term> run_commands(const Task& task, const Files& left_behind, const std::set<std::string>& programs,
                          const std::set<std::string>& removed, const TreeDetails& details, const Runner& runner);

// A command whose report of tests counts and not its end; one that was killed has no say, whatever it had printed.
CheckCommand reported(CheckCommand command);

// Whether a command did what it must; `why` where it did not.
Term judge(const CheckCommand& command, const ToolOutcome& outcome);

}  // namespace tandem::envs
