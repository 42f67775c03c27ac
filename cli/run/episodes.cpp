// `tandem episodes`: every episode of a run, one JSON object a line.
#include "dashboard/episodes.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>

#include "archive/choice.h"
#include "archive/data_set.h"
#include "base/json_line.h"
#include "cli/command.h"
#include "dashboard/losses.h"
#include "dashboard/run_files.h"
#include "rollout/books/ledger_log.h"
#include "run/resume.h"

namespace tandem::cli {
namespace {

struct EpisodesOptions {
  std::string run, format, steps, versions;
  bool tokens = false, successful = false;
  std::optional<double> least_reward;
  archive::EpisodeChoice choice;
};

Status print_line(const Json& object) {
  const std::string line = dump_json_line(object) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size())
    return Status::from_errno("standard output", errno);
  return {};
}

Result<archive::EpisodeChoice> choice_of(const EpisodesOptions& options) {
  archive::EpisodeChoice choice = options.choice;
  if (options.successful) choice.least_reward = 1;
  if (options.least_reward) choice.least_reward = options.least_reward;
  if (!options.steps.empty()) choice.trained = TRY(archive::step_range(options.steps));
  if (!options.versions.empty()) choice.sampled = TRY(archive::step_range(options.versions));
  return choice;
}

// Episodes that could not be told as messages.
struct Untold {
  uint64_t count = 0, first = 0;
  std::string why;  // of the first
};

Result<int> print_episodes(const EpisodesOptions& options) {
  // The log is enough; without one there is at least to be a run.
  if (!fs::exists(rollout::ledger_log_path(options.run))) TRY(dashboard::check_run_directory(options.run));
  const auto choice = TRY(choice_of(options));
  std::optional<archive::DataSetWriter> writer;
  if (!options.format.empty())
    writer = TRY(archive::DataSetWriter::open(options.run, TRY(archive::data_format_named(options.format))));
  const auto plan_of_config = [&]() -> Result<rollout::RunPlan> {
    return run::plan_of(TRY(run::read_resolved(options.run)), options.run);
  };
  std::optional<std::set<uint64_t>> chosen;
  if (!choice.takes_all()) chosen = TRY(archive::choose_episodes(options.run, plan_of_config, choice));
  const auto with_tokens = options.tokens || writer ? dashboard::WithTokens::kYes : dashboard::WithTokens::kNo;
  uint64_t told = 0;
  Untold untold;
  const auto visit = [&](const Json& object) -> Status {
    const auto number = object["episode"].get<uint64_t>();
    if (chosen && !chosen->contains(number)) return {};
    if (!writer) return print_line(object);
    // What is under way, or was lost before it said anything, is nothing to tell.
    if (object["outcome"].is_null() || object["tokens"].empty()) return {};
    const auto lines = writer->lines_of(object);
    if (lines) {
      ++told;
      for (const Json& line : *lines) TRY(print_line(line));
      return {};
    }
    if (untold.count++ == 0) untold = {.count = 1, .first = number, .why = lines.error().to_string()};
    return {};
  };
  const auto ledger = TRY(dashboard::visit_episodes(options.run, plan_of_config, with_tokens, visit));
  if (std::fflush(stdout) != 0) return fail(Status::from_errno("standard output", errno));
  for (const auto& loss : dashboard::losses_of(options.run, ledger)) fmt::print(stderr, "tandem episodes: {}\n", loss);
  if (untold.count > 0) {
    fmt::print(stderr, "tandem episodes: {} of {} episodes cannot be told as messages; the first is episode {}: {}\n",
               untold.count, untold.count + told, untold.first, untold.why);
  }
  return untold.count > 0 && told == 0 ? kFailed : kDone;
}

}  // namespace

Action add_episodes(CLI::App& command) {
  const auto options = std::make_shared<EpisodesOptions>();
  command.add_option("RUN", options->run, "The run directory; the run may still be on")->required();
  command.add_flag("--tokens", options->tokens,
                   "Include the tokens of each, whether they were sampled, their logprobs and versions");
  command.add_option("--export", options->format,
                     "Write messages in place of that: openai (chat messages with tool calls) or atif");
  auto* successful = command.add_flag("--successful", options->successful, "Only episodes with a reward of 1");
  command.add_option("--min-reward", options->least_reward, "Only episodes with a reward of this or more")
      ->excludes(successful);
  command.add_option("--steps", options->steps, "Only episodes that were trained in these steps: 4-9, 4-, -9 or 4");
  command.add_option("--versions", options->versions,
                     "Only episodes that began with these versions of the weights; 0 is the model before training");
  command.add_option("--split", options->choice.split, "Only training tasks, or only held-out ones")
      ->check(CLI::IsMember({"train", "heldout"}));
  command.add_flag("--best-of-group", options->choice.best_of_group,
                   "Of the selected episodes only the one with the highest reward in each group");
  command.footer(
      "--export tells an episode exactly or not at all: an episode whose tokens are not what its messages give is "
      "left\n"
      "out and counted. Exit code 1 where none could be told.\n\n"
      "Examples:\n"
      "  tandem episodes runs/tiny-1 | jq -c '{episode, reward, outcome}'\n"
      "  tandem episodes runs/tiny-1 --tokens > episodes.jsonl\n"
      "  tandem episodes runs/tiny-1 --export openai --successful --split train > chats.jsonl\n"
      "  tandem episodes runs/tiny-1 --export atif --best-of-group --versions 50- > trajectories.jsonl");
  return [options] { return print_episodes(*options); };
}

}  // namespace tandem::cli
