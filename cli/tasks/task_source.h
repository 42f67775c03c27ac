// The tasks that a command line names: a set on disk, or some of the workspace family.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "envs/tasks/built_image.h"
#include "envs/tasks/task.h"
#include "envs/tasks/task_set.h"

namespace tandem::cli {

// `path` is a set of tasks (see TaskSet::read), "workspace" or "workspace:KIND". Of the workspace family, whose tasks
// have no end, the first `count` of each kind are taken. `names` chooses from them, whole names or beginnings that end
// before a slash; empty: all. kNotFound where one of them is no task.
// Tasks of a set that are left out are told in the log, or, where it is not null, put into `skipped`.
Result<std::vector<envs::Task>> read_tasks(const std::string& path, int count, const std::vector<std::string>& names,
                                           envs::Recipes recipes = envs::Recipes::kFollowed,
                                           std::vector<envs::SkippedTask>* skipped = nullptr);

// The name of a task in output.
std::string name_of(const envs::Task& task);

// A short description of a task's checks: "2 commands, answer".
std::string check_of(const envs::Task& task);

}  // namespace tandem::cli
