// Checks by commands: what somebody's own tests say about the files left behind.
#pragma once

#include "envs/grade.h"

namespace tandem::envs {

// The value of a term, why it is not 1, and the share of it that holds where that is known.
struct Term {
  double value = 0;
  std::string why = {};
  std::optional<double> share = {};
};

// Files of the check take the place of whatever lies at their paths, be it a folder or a file in place of one. Files
// that tell test runners and interpreters what to do (conftest.py, sitecustomize.py and the like) are as the task began
// with them, or not there.
bool steers_tests(std::string_view path);  // whether a file is one of those
Result<Term> run_commands(const Task& task, const Files& left_behind, const std::set<std::string>& programs,
                          const Runner& runner);

// A command whose report of tests counts and not its end; one that was killed has no say, whatever it had printed.
CheckCommand reported(CheckCommand command);

// See CallCheck. Values travel as Python literals; a result that is none counts as a failure.
Result<Term> run_calls(const CallCheck& check, const Files& left_behind, const Runner& runner);

// Whether a command did what it must; `why` where it did not.
Term judge(const CheckCommand& command, const ToolOutcome& outcome);

}  // namespace tandem::envs
