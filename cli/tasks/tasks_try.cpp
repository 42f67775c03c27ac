// `tandem tasks try`: a person in the place of the model.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "cli/command.h"
#include "cli/tasks/task_source.h"
#include "cli/tasks/tasks_commands.h"
#include "envs/backends/backends.h"
#include "envs/episodes/validate.h"

namespace tandem::cli {
namespace {

int print_grade(const envs::Grade& grade) {
  fmt::print("reward {}\n", grade.reward);
  for (const auto& [name, value] : grade.terms) fmt::print("  {:<10} {}\n", name, value);
  if (!grade.why.empty()) fmt::print("{}\n", grade.why);
  return grade.reward == 1 ? kDone : kFailed;
}

}  // namespace

Result<int> try_task(const envs::Task& task, const TryOptions& options) {
  // A person wants to see more of an output, and for longer, than a model is shown.
  envs::EpisodeOptions limits{.output_limit = 100'000, .call_time_limit_s = 120};
  limits.packages = TRY(packages_of(options.packages, limits.call_time_limit_s));
  const auto backend = TRY(envs::start_sandboxes());
  envs::PreparedSnapshots prepared(kPreparedBytes);
  if (limits.packages) limits.prepared = &prepared;  // what is installed is so once, also for the tests
  if (options.solution) return print_grade(TRY(envs::play_solution(task, *backend, limits)));

  const auto episode = TRY(envs::Episode::open(task, *backend, limits));
  const bool tty = ::isatty(STDIN_FILENO) == 1;
  if (tty) {
    fmt::print("{}\n\n{}\n\n", name_of(task), task.instruction);
    fmt::print(
        "Each line runs in the sandbox, in bash, as the model's commands do. An empty line that ends the input\n"
        "(Ctrl-D) or `exit` asks for the grade; in a task in steps `exit` ends a step.\n");
  }
  for (std::string line; !episode->over();) {
    if (tty) fmt::print("$ ");
    std::fflush(stdout);
    if (!std::getline(std::cin, line)) break;
    if (line == "exit") {
      const auto instruction = TRY(episode->next_step(options.answer));
      if (!instruction) break;
      if (tty) fmt::print("\n{}\n\n", *instruction);
      continue;
    }
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    const auto outcome = TRY(episode->call("run_terminal_cmd", {{"command", line}}));
    fmt::print("{}", outcome.output);
  }
  return print_grade(TRY(episode->score(options.answer)));
}

}  // namespace tandem::cli
