// A task as one YAML file that a person writes; docs/environments.md has the format.
#pragma once

#include <optional>

#include "base/file.h"
#include "envs/tasks/mistakes.h"
#include "envs/tasks/task.h"
#include "envs/tasks/task_base.h"

namespace tandem::envs {

// The task in `file`, with its kind where the file says one. Every mistake in the file is added to `mistakes`; then
// there is no task. `bases`: of the tasks that are read together.
std::optional<Task> read_yaml_task(const fs::path& file, Mistakes& mistakes, BaseSources& bases);
inline std::optional<Task> read_yaml_task(const fs::path& file, Mistakes& mistakes) {
  BaseSources bases;
  return read_yaml_task(file, mistakes, bases);
}

}  // namespace tandem::envs
