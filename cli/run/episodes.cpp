// `tandem episodes`: every episode of a run, one JSON object a line.
#include "dashboard/episodes.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>

#include "cli/command.h"
#include "dashboard/losses.h"
#include "dashboard/run_files.h"
#include "rollout/books/ledger_log.h"
#include "run/resume.h"

namespace tandem::cli {
namespace {

struct EpisodesOptions {
  std::string run;
  bool tokens = false;
};

Result<int> print_episodes(const EpisodesOptions& options) {
  // The log is enough; without one there is at least to be a run.
  if (!fs::exists(rollout::ledger_log_path(options.run))) TRY(dashboard::check_run_directory(options.run));
  const auto plan_of_config = [&]() -> Result<rollout::RunPlan> {
    return run::plan_of(TRY(run::read_resolved(options.run)), options.run);
  };
  const auto with_tokens = options.tokens ? dashboard::WithTokens::kYes : dashboard::WithTokens::kNo;
  const auto ledger =
      TRY(dashboard::visit_episodes(options.run, plan_of_config, with_tokens, [](const Json& object) -> Status {
        const std::string line = dump_json(object) + "\n";
        if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size())
          return Status::from_errno("standard output", errno);
        return {};
      }));
  if (std::fflush(stdout) != 0) return fail(Status::from_errno("standard output", errno));
  for (const auto& loss : dashboard::losses_of(options.run, ledger)) fmt::print(stderr, "tandem episodes: {}\n", loss);
  return kDone;
}

}  // namespace

Action add_episodes(CLI::App& command) {
  const auto options = std::make_shared<EpisodesOptions>();
  command.add_option("RUN", options->run, "The run directory; the run may still be on")->required();
  command.add_flag("--tokens", options->tokens,
                   "With the tokens of each, which were sampled, their logprobs and versions");
  command.footer(
      "Examples:\n"
      "  tandem episodes runs/tiny-1 | jq -c '{episode, reward, outcome}'\n"
      "  tandem episodes runs/tiny-1 --tokens > episodes.jsonl");
  return [options] { return print_episodes(*options); };
}

}  // namespace tandem::cli
