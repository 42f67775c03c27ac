// `tandem runs`: its subcommands, and the list of runs.
#include <fmt/format.h>

#include <algorithm>

#include "archive/entry.h"
#include "base/clock.h"
#include "base/json_line.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/runs/runs_commands.h"

namespace tandem::cli {
namespace {

// "3d", "2h10m": of an age nobody reads seconds.
std::string short_age(double seconds) {
  constexpr double kDay = 86'400;
  if (seconds >= 2 * kDay) return fmt::format("{:.0f}d", seconds / kDay);
  return format_seconds(std::max(1.0, std::floor(seconds)));
}

std::string success_text(const archive::RunEntry& run) {
  if (run.heldout)
    return fmt::format("{:5.1f} % [{:.1f}, {:.1f}]", 100 * run.heldout->value, 100 * run.heldout->low,
                       100 * run.heldout->high);
  return run.training_success ? fmt::format("{:5.1f} % train", 100 * *run.training_success) : "-";
}

std::string seconds_text(const std::optional<double>& seconds) {
  return seconds ? format_seconds(*seconds) : std::string("-");
}

}  // namespace

Result<int> list_runs(const std::string& folder, bool json) {
  const auto paths = TRY(archive::find_runs(folder));
  const double now = SystemClock().unix_seconds();
  std::vector<archive::RunEntry> runs;
  size_t width = 3;
  for (const auto& path : paths) {
    runs.push_back(archive::read_entry(path));
    if (json) fmt::print("{}\n", dump_json_line(archive::to_json(runs.back(), now)));
    width = std::max(width, path.string().size());
  }
  if (json) return kDone;
  if (runs.empty()) {
    fmt::print(stderr, "there is no run in {}\n", folder);
    return kDone;
  }
  fmt::print("{:<{}}  {:<11}  {:>9}  {:<22}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {}\n", "run", width, "state", "step",
             "success", "age", "time", "cores", "GPUs", "size", "model");
  for (const auto& run : runs) {
    fmt::print("{:<{}}  {:<11}  {:>9}  {:<22}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {}\n", run.dir.string(), width,
               archive::to_string(run.state), fmt::format("{}/{}", run.step, run.steps), success_text(run),
               run.ended ? short_age(now - *run.ended) : "-", seconds_text(run.wall_seconds),
               seconds_text(run.core_seconds), seconds_text(run.gpu_seconds), format_bytes(run.bytes), run.model);
  }
  for (const auto& run : runs) {
    if (!run.problem.empty()) fmt::print(stderr, "tandem runs: {}: {}\n", run.dir.string(), run.problem);
  }
  return kDone;
}

Action add_runs(CLI::App& command) {
  const auto folder = std::make_shared<std::string>("runs");
  const auto json = std::make_shared<bool>(false);
  const auto before = std::make_shared<std::string>(), after = std::make_shared<std::string>();
  const auto pruning = std::make_shared<PruneOptions>();
  command.require_subcommand(0, 1);
  command.add_option("DIR", *folder, "Folder that runs lie in, or below; or a run")->capture_default_str();
  command.add_flag("--json", *json, "Print a JSON object a run");
  command.footer(
      "success: of held-out tasks, sampled, after training (before it where there is no other), with the 95 % "
      "interval;\n"
      "\"train\": of the last step's episodes. age: since the run's last sign. cores: seconds of processors that its\n"
      "processes used; what tools use in sandboxes is not counted. GPUs: seconds that it held a GPU, for each of "
      "them.\n\n"
      "Examples:\n"
      "  tandem runs\n"
      "  tandem runs /data/runs --json | jq -c '{run, state, core_seconds}'\n"
      "  tandem runs compare runs/tiny-1 runs/tiny-2\n"
      "  tandem runs prune runs --keep checkpoints=1 --keep trajectories=7d --dry-run");

  auto* compare = command.add_subcommand("compare", "What differs between two runs: config, success, tokens, cost");
  compare->add_option("BEFORE", *before, "A run directory; the run may be on")->required();
  compare->add_option("AFTER", *after, "Another one")->required();
  compare->add_flag("--json", *json, "Print one JSON object");
  compare->footer(
      "Success has 95 % intervals. The difference is paired over the held-out tasks that both runs measured after "
      "training.\n\nExample:\n  tandem runs compare runs/tiny-1 runs/tiny-2");

  auto* prune = command.add_subcommand("prune", "Remove what is not needed any more: checkpoints, trajectories, runs");
  prune->add_option("DIR", pruning->folder, "Folder that runs lie in, or below; or a run")->required();
  prune->add_option("--keep", pruning->keep,
                    "What to keep: checkpoints=N (the newest of each run), trajectories=AGE and logs=AGE (of runs that "
                    "are done: where they ended less long ago), runs=N (the newest are left alone altogether)");
  prune->add_option("--drop", pruning->drop, "Whole runs to remove: failed, killed, interrupted, empty");
  prune->add_option("--older-than", pruning->older_than, "AGE; with --drop: where their last sign is that long ago");
  prune->add_flag("--dry-run", pruning->dry_run, "Show what would be removed, and how many bytes; remove nothing");
  prune->add_flag("--json", *json, "Print a JSON object for each thing that goes");
  prune->footer(
      "AGE is 90s, 15m, 12h, 7d or 2w. What neither --keep nor --drop names stays. Always left alone: runs that are "
      "on,\n"
      "copies that a standby keeps, runs that cannot be read, what a run that is not done needs to go on, export/, the "
      "checkpoints that latest and\n"
      "best name, and what the model of another run below DIR is.\n\n"
      "Examples:\n"
      "  tandem runs prune runs --keep checkpoints=1 --keep trajectories=7d --keep logs=30d --dry-run\n"
      "  tandem runs prune runs --drop failed --drop empty --older-than 2d\n"
      "  tandem runs prune runs/tiny-1 --keep checkpoints=1");

  return [=]() -> Result<int> {
    if (compare->parsed()) return compare_two_runs(*before, *after, *json);
    if (!prune->parsed()) return list_runs(*folder, *json);
    pruning->json = *json;
    return prune_runs(*pruning);
  };
}

}  // namespace tandem::cli
