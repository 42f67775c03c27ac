// Common parts of tasks in the form of a container: the folder that their Dockerfile works in is the workspace, and the
// folders that their scripts know are there by name.
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

// Parts of a build context that the model must not see, in Harbor's form.
inline constexpr std::array<std::string_view, 6> kHiddenOfHarbor = {"solution",  "tests",          "solve.sh",
                                                                    "task.toml", "instruction.md", "test.sh"};

// Lets `task` begin as `build` says, in its WORKDIR, with the variables that `environment` exports, in place of those
// of ENV. Each of `folders`
// ("/tests") leads to the one of its name in /tmp. A WORKDIR that cannot be a workspace is a mistake of `dockerfile`.
void begin_in(const Build& build, const std::string& environment, std::initializer_list<std::string_view> folders,
              const std::string& dockerfile, Task& task, Mistakes& mistakes);

// Folders of the root that scripts of the task name, or its instruction, are there.
void add_named_folders(Task& task, std::span<const std::string_view> texts);

// The variables of ENV, as a beginning of a command line.
std::string exports_of(const Build& build);

// What a script of tests begins with: `exports`, then the system's programs and libraries before those of folders that
// the model can write, whatever PATH and LD_LIBRARY_PATH say; a program that is passed over for that is named on
// standard error. A mistake of `file`: variables by which Bash, the linker or an interpreter would load a file of the
// workspace before the script runs, and files of `build` in a folder of PATH that have the name of a program of the
// system.
std::string test_environment(const std::string& exports, const Build& build, const std::string& file,
                             Mistakes& mistakes);

}  // namespace tandem::envs
