// `tandem runs prune`: what goes, and how much that is.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "archive/pruning.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/json_line.h"
#include "base/text.h"
#include "cli/runs/runs_commands.h"

namespace tandem::cli {
namespace {

Result<archive::PruneRule> rule_of(const PruneOptions& options) {
  archive::PruneRule rule;
  for (const auto& text : options.keep) TRY(archive::add_keep(rule, text));
  for (const auto& text : options.drop) TRY(archive::add_drop(rule, text));
  if (!options.older_than.empty()) {
    if (rule.drop.empty())
      return fail(Status::invalid("--older-than is for --drop")
                      .hint("trajectories and logs have their own: --keep trajectories=7d"));
    const auto age = archive::age_from(options.older_than);
    if (!age) return fail(Status(age.error()).at("--older-than"));
    rule.drop_after = *age;
  }
  if (rule.asks_for_nothing()) {
    return fail(Status::invalid("nothing was said about what goes")
                    .hint("say what stays, as in --keep checkpoints=1 --keep trajectories=7d, or which runs go, as in "
                          "--drop failed"));
  }
  return rule;
}

void show(const std::vector<archive::Removal>& removals, const PruneOptions& options, uint64_t& bytes) {
  for (const auto& removal : removals) {
    bytes += removal.bytes;
    if (options.json) {
      fmt::print("{}\n", dump_json_line(Json{{"path", removal.path.string()},
                                             {"bytes", removal.bytes},
                                             {"why", removal.why},
                                             {"removed", !options.dry_run}}));
    } else {
      fmt::print("{}  {:>9}  {}  ({})\n", options.dry_run ? "would go" : "removed", format_bytes(removal.bytes),
                 removal.path.string(), removal.why);
    }
  }
}

}  // namespace

Result<int> prune_runs(const PruneOptions& options) {
  const auto rule = TRY(rule_of(options));
  const auto paths = TRY(archive::find_runs(options.folder));
  const auto needed = archive::models_of(paths);
  const double now = SystemClock().unix_seconds();
  std::vector<archive::RunEntry> runs;
  for (const auto& path : paths) runs.push_back(archive::read_entry(path));
  // The newest last.
  std::stable_sort(runs.begin(), runs.end(), [](const auto& left, const auto& right) {
    return left.began.value_or(0) < right.began.value_or(0);
  });
  runs.resize(runs.size() - std::min(runs.size(), rule.runs));
  std::set<fs::path> folders;
  uint64_t bytes = 0;
  int code = kDone;
  for (const auto& run : runs) {
    if (run.state == archive::State::kOn) {
      fmt::print(stderr, "{} is on, and left alone\n", run.dir.string());
      continue;
    }
    if (run.state == archive::State::kCopy) {
      fmt::print(stderr, "{} is the copy that a standby keeps of a run, and left alone\n", run.dir.string());
      continue;
    }
    if (!run.problem.empty()) {
      fmt::print(stderr, "{} is left alone: {}\n", run.dir.string(), run.problem);
      continue;
    }
    if (options.dry_run) {
      show(archive::removals_of(run, rule, needed, now), options, bytes);
      continue;
    }
    folders.insert(run.dir.parent_path());
    const auto removed = archive::prune(run.dir, rule, needed, now);
    if (removed) {
      show(*removed, options, bytes);
    } else {
      fmt::print(stderr, "tandem runs prune: {}\n", removed.error().to_string());
      code = kFailed;
    }
  }
  if (!options.dry_run) folders.insert(options.folder);
  for (const auto& folder : folders) archive::sweep_pruned(folder);
  if (!options.json) fmt::print("{} {}\n", format_bytes(bytes), options.dry_run ? "would be freed" : "freed");
  return code;
}

}  // namespace tandem::cli
