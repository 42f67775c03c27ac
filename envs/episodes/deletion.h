// Tasks made of a repository of Python: the body of one function is taken out, and the tests that miss it must pass
// again.
//
// A task is a file in our own form, beside a copy of the repository that all of them share; what a task needs of this
// module is in its file.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "envs/tasks/python_functions.h"

namespace tandem::envs {

// A repository whose tests have been run.
struct TestedRepository {
  Files files;
  std::set<std::string> programs;
  std::string command;             // runs the tests, and reports them as pytest or unittest do
  std::vector<std::string> tests;  // that pass, each time
  double seconds = 0;              // that a task gives the command
};

// Runs the tests a few times. kInvalid, with the end of what they said, where none is reported as passed each time.
Result<TestedRepository> test_repository(Files files, std::set<std::string> programs, const std::string& command,
                                         SandboxBackend& backend);

// Tests that fail each time when the function has no body.
Result<std::vector<std::string>> tests_that_miss(const TestedRepository& repository, const PythonFunction& function,
                                                 SandboxBackend& backend);

// The name of a function's task: "text.words-Counter.add".
std::string task_name(const PythonFunction& function);

// The copy of the repository in the folder of the tasks.
Status write_repository(const fs::path& folder, const TestedRepository& repository);

// The function's task in that folder, its file last and whole. kInvalid where it would be larger than a task may be.
Status write_task(const fs::path& folder, const TestedRepository& repository, const PythonFunction& function);

}  // namespace tandem::envs
