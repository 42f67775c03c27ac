// Requirements of tasks on this machine beside their files.
//
// Thread safety: all of it.
#pragma once

#include <string>
#include <vector>

#include "envs/tasks/task.h"

namespace tandem::envs {

// Packages of Python among a task's needs, as "pandas==2.3.2".
std::vector<std::string> python_needs(const Task& task);

// kUnfit, naming task and program, where this machine lacks what the task cannot be judged without. `installs_python`:
// packages of Python are installed for each task (env.packages.pypi), and need not be there.
Status check_needs(const Task& task, bool installs_python);

}  // namespace tandem::envs
