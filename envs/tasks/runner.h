// Runs the commands of a check in the grader's sandbox.
//
// Values and a function that the caller provides. Thread safety: that of the function.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "envs/tasks/task.h"
#include "envs/tools/tool.h"

namespace tandem::envs {

// Initial files of a sandbox for grading.
struct Place {
  Files files;
  std::set<std::string> programs = {};
  Links links = {};
  TreeDetails details = {};  // put after the files
  // The image is the base; `files` overrides it: what differs is replaced, and what is not in `files` is deleted,
  // except for files that steer tests (command_check.h).
  std::string image = {};
  // The base that `files` are put over, and what of it is deleted before: files, or folders with all in them.
  std::optional<BaseTree> base = {};
  std::set<std::string> removed = {};
  int disk_mb = kUsualDiskMb;  // as Task's
};

// Runs commands in order in a fresh sandbox, until one ends with another exit code than it must or is too slow: the
// outcomes of those that ran, their output as it was printed. An error means that the sandbox failed, not a command.
using Runner =
    std::function<Result<std::vector<ToolOutcome>>(const Place& place, std::span<const CheckCommand> commands)>;

}  // namespace tandem::envs
