// Subcommands of `tandem tasks`, one function each; they return the exit code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/package_options.h"
#include "envs/tasks/task.h"
#include "envs/tasks/task_set.h"

namespace tandem::cli {

// Memory of prepared snapshots, as env.beginnings_mb of a run.
inline constexpr uint64_t kPreparedBytes = uint64_t{256} << 20;

struct ValidateOptions {
  std::string results;  // a file of JSON Lines that is gone on with; empty: none
  int repeats = 5;
  int threads = 0;  // 0: one for each core
  bool json = false;
  PackageOptions packages;
};
// kDone where all tasks passed, kFailed where one did not, kUnfit where all that did not lack something of this
// machine, kInterrupted after SIGINT or SIGTERM. Those of `skipped`, which are no tasks here, are told and counted.
// `path` is where they are from; where all passed, the command that comes next names it.
Result<int> validate_tasks(const std::string& path, const std::vector<envs::Task>& tasks,
                           const std::vector<envs::SkippedTask>& skipped, envs::Recipes recipes,
                           const ValidateOptions& options);

// Writes tasks to begin with to `folder`, which must be new or empty: one a form of check, with solution, and a cheat
// to try on them. Names the command that comes next.
Result<int> new_tasks(const std::string& folder);

struct MakeOptions {
  std::string repository, folder;
  std::string command;        // runs the tests
  bool undocumented = false;  // functions without a docstring, too
  int limit = 0;              // at most so many tasks; 0: all
  int threads = 0;            // 0: one for each core
  bool json = false;
};
// Tasks of the repository's functions, in `folder`, where an earlier call for the same repository left off. kDone where
// there are tasks then, kFailed where there are none, kInterrupted after SIGINT or SIGTERM.
Result<int> make_tasks(const MakeOptions& options);

struct FromGitOptions {
  std::string repository, folder;
  std::string commits = "HEAD";  // a range of git's
  std::string tests;             // a pattern of paths; empty: the usual ones
  std::string command;           // runs the tests
  std::string project;           // what instructions call the repository; empty: its folder's name
  std::string kind;              // of the tasks; empty: the project
  bool by_exit = false;          // the end of the command decides
  int seconds = 40;              // that one run of the tests may take
  int limit = 0;                 // at most so many tasks; 0: all
  int most_files = 20;           // that a commit changes
  int most_names = 12;           // that an instruction tells beside the message
  int threads = 0;               // 0: one for each core
  bool json = false;
};
// Tasks of the repository's commits, in `folder`, where an earlier call for the same repository left off. kDone where
// there are tasks then, kFailed where there are none, kInterrupted after SIGINT or SIGTERM.
Result<int> tasks_from_git(const FromGitOptions& options);

struct BuildOptions {
  std::string path;
  bool json = false;
};
// Builds the images of the set's Dockerfiles that the container engine does not have yet, one after another. kDone
// where all are there then, kFailed where one could not be built.
Result<int> build_images(const BuildOptions& options);

struct ShowOptions {
  std::string model;  // whose template writes the tools; empty: none
  bool json = false;
};
// Servers of tools that the task brings are begun in a sandbox, as in an episode. kIncomplete where they cannot be:
// then their tools are left out, which is said, and there are no prompt_ids.
Result<int> show_task(envs::Task task, const ShowOptions& options);

struct TryOptions {
  std::string answer;
  bool solution = false;  // plays the task's own solution in place of a shell
  PackageOptions packages;
};
// A shell in the task's sandbox, its lines from standard input; then the grade. kDone where that is 1.
Result<int> try_task(const envs::Task& task, const TryOptions& options);

}  // namespace tandem::cli
