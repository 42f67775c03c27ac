// Tasks in Harbor's form (1.0 to 1.3): a folder with task.toml, instruction.md, environment/, tests/ and solution/.
//
// Features that a sandbox lacks are refused by name and line: other services, GPUs, users. docs/environments.md has the
// list.
#pragma once

#include <optional>

#include "base/file.h"
#include "envs/tasks/built_image.h"
#include "envs/tasks/mistakes.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

// The task in `folder`. Every mistake is added to `mistakes`; then there is no task.
std::optional<Task> read_harbor_task(const fs::path& folder, Recipes recipes, Mistakes& mistakes);

}  // namespace tandem::envs
