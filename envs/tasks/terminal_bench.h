// Tasks in the form of Terminal-Bench's first version: a folder with task.yaml, Dockerfile, run-tests.sh, tests/ and
// solution.sh.
//
// All tests that pytest names must pass, in a fresh sandbox into which run-tests.sh and tests/ come only then. What a
// sandbox cannot give is refused by name and line: a network, services beside the one called client, keys typed into a
// terminal. docs/environments.md has the list.
#pragma once

#include <optional>

#include "base/file.h"
#include "envs/tasks/built_image.h"
#include "envs/tasks/mistakes.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

// The task in `folder`. Every mistake is added to `mistakes`; then there is no task.
std::optional<Task> read_terminal_bench_task(const fs::path& folder, Recipes recipes, Mistakes& mistakes);

}  // namespace tandem::envs
