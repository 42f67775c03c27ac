// What tasks in the form of a container have in common: the folder that their Dockerfile works in is the workspace, and
// the folders that their scripts know are there by name.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "envs/tasks/dockerfile.h"
#include "envs/tasks/mistakes.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

// A command that makes the folders of logs.
inline constexpr std::string_view kMakeLogs = "mkdir -p /logs/verifier /logs/agent /logs/artifacts";

// What of a build context a model must not find, in Harbor's form.
inline constexpr std::array<std::string_view, 6> kHiddenOfHarbor = {"solution",  "tests",          "solve.sh",
                                                                    "task.toml", "instruction.md", "test.sh"};

// Lets `task` begin as `build` says, in its WORKDIR, with the variables that `environment` exports. Each of `folders`
// ("/tests") leads to the one of its name in /tmp. A WORKDIR that cannot be a workspace is a mistake of `dockerfile`.
void begin_in(const Build& build, const std::string& environment, std::initializer_list<std::string_view> folders,
              const std::string& dockerfile, Task& task, Mistakes& mistakes);

// Folders of the root that scripts of the task name, or its instruction, are there.
void add_named_folders(Task& task, std::span<const std::string_view> texts);

// The variables of ENV, as a beginning of a command line.
std::string exports_of(const Build& build);

}  // namespace tandem::envs
