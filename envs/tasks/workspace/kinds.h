// The kinds of the workspace family, and the tasks of each.
//
// A task is a pure function of its spec. Thread safety: all of it.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

// Easiest to learn first.
std::span<const std::string_view> task_kinds();
// These, `find`, which is for a model that has codebase_search (env.encoder), and `echo`, which only shows that a loop
// works and is no measure of a model.
std::span<const std::string_view> every_kind();

// kNotFound, with the nearest kind, where there is no such kind.
Result<Task> make_task(const TaskSpec& spec);

}  // namespace tandem::envs
