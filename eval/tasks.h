// The tasks of a suite, read or made, and checked against this machine.
#pragma once

#include <string>
#include <vector>

#include "envs/tasks/task.h"
#include "eval/suite.h"

namespace tandem::eval {

// The first of each kind, then the second ones, up to the limit. kInvalid holds every mistake in every file; kUnfit,
// naming tasks and programs, where this machine lacks what they need.
Result<std::vector<envs::Task>> read_suite_tasks(const Suite& suite);

// The name of a task in results.
std::string name_of_task(const envs::Task& task);

}  // namespace tandem::eval
