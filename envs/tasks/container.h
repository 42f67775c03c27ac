// What tasks in the form of a container have in common: the folder that their Dockerfile works in is the workspace, and
// the folders that their scripts know are there by name.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "envs/tasks/dockerfile.h"
#include "envs/tasks/mistakes.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

// A command that makes the folders of logs.
inline constexpr std::string_view kMakeLogs = "mkdir -p /tmp/logs/verifier /tmp/logs/agent /tmp/logs/artifacts";

// Lets `task` begin as `build` says, with the variables that `environment` exports. Each of `folders` ("/tests") leads
// to the one of its name in /tmp. A WORKDIR that cannot be a workspace is a mistake of `dockerfile`.
void begin_in(const Build& build, const std::string& environment, std::initializer_list<std::string_view> folders,
              const std::string& dockerfile, Task& task, Mistakes& mistakes);

// The variables of ENV, as a beginning of a command line.
std::string exports_of(const Build& build);

}  // namespace tandem::envs
