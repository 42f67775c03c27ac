#include "archive/pruning.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "run/checks.h"
#include "run/layout.h"
#include "run/supervisor.h"
#include "trainer/learn/checkpoints.h"

namespace tandem::archive {
namespace {

constexpr std::string_view kRemoved = ".pruned.tmp";
constexpr double kMostDays = 36'500;

bool lies_in(const fs::path& path, const fs::path& folder) {
  const auto [end, at] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

bool is_needed(const fs::path& path, const std::set<fs::path>& needed) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(path, error);
  return std::any_of(needed.begin(), needed.end(), [&](const fs::path& one) { return lies_in(one, whole); });
}

void add(std::vector<Removal>& removals, const fs::path& path, std::string why, const std::set<fs::path>& needed) {
  std::error_code error;
  if (!fs::exists(path, error) || is_needed(path, needed)) return;
  removals.push_back({.path = path, .bytes = bytes_below(path), .why = std::move(why)});
}

void add_checkpoints(std::vector<Removal>& removals, const fs::path& run, size_t kept,
                     const std::set<fs::path>& needed) {
  std::set<fs::path> stay = trainer::linked_checkpoints(run);
  stay.insert(needed.begin(), needed.end());
  const auto all = trainer::checkpoints_of(run);
  for (size_t i = 0; i + std::max<size_t>(kept, 1) < all.size(); ++i)
    add(removals, all[i].second, fmt::format("not of the newest {}", kept), stay);
}

// The name that `path` has while it is removed.
fs::path hidden(const fs::path& path) {
  return path.parent_path() / fmt::format(".{}{}", path.filename().string(), kRemoved);
}

Status remove_whole(const fs::path& path) {
  const fs::path aside = hidden(path);
  std::error_code error;
  fs::remove_all(aside, error);  // of an earlier pruning
  fs::rename(path, aside, error);
  if (error) return Status::from_errno(path.string(), error.value());
  fs::remove_all(aside, error);
  return error ? Status::from_errno(aside.string(), error.value()) : Status();
}

}  // namespace

Result<double> age_from(std::string_view text) {
  double number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  constexpr double kDay = 86'400;
  const double seconds = unit == "s"   ? 1
                         : unit == "m" ? 60
                         : unit == "h" ? 3'600
                         : unit == "d" ? kDay
                         : unit == "w" ? 7 * kDay
                                       : 0;
  if (failed != std::errc() || seconds == 0 || !(number >= 0 && number * seconds <= kMostDays * kDay))
    return fail(Status::invalid(fmt::format("\"{}\" is no age", text)).hint("write 90s, 15m, 12h, 7d or 2w"));
  return number * seconds;
}

Status add_keep(PruneRule& rule, std::string_view text) {
  const size_t sign = text.find('=');
  const std::string_view name = text.substr(0, sign);
  if (name != "checkpoints" && name != "trajectories" && name != "logs" && name != "runs") {
    return Status::invalid(fmt::format("--keep {}: \"{}\" is nothing that a run has{}", text, name,
                                       did_you_mean(name, {"checkpoints", "trajectories", "logs", "runs"})));
  }
  if (sign == std::string_view::npos) {
    return Status::invalid(fmt::format("--keep {}: how many, or for how long?", text))
        .hint("write checkpoints=2, trajectories=7d, logs=30d, runs=10");
  }
  const std::string_view value = text.substr(sign + 1);
  if (name == "trajectories" || name == "logs") {
    const auto age = age_from(value);
    if (!age) return Status(age.error()).at(fmt::format("--keep {}", text));
    (name == "logs" ? rule.logs : rule.trajectories) = *age;
    return {};
  }
  size_t count = 0;
  const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), count);
  const size_t least = name == "checkpoints" ? 1 : 0;
  if (failed != std::errc() || end != value.data() + value.size() || count < least)
    return Status::invalid(fmt::format("--keep {}: \"{}\" is not a number from {}", text, value, least));
  if (name == "runs")
    rule.runs = count;
  else
    rule.checkpoints = count;
  return {};
}

Status add_drop(PruneRule& rule, std::string_view text) {
  for (const State state : {State::kFailed, State::kKilled, State::kInterrupted, State::kEmpty}) {
    if (text != to_string(state)) continue;
    rule.drop.insert(state);
    return {};
  }
  if (text == to_string(State::kDone) || text == to_string(State::kOn)) {
    return Status::invalid(fmt::format("--drop {}: only runs that did not come to their end go whole", text))
        .hint("of runs that are done --keep takes away checkpoints, trajectories and logs");
  }
  if (text == to_string(State::kCopy)) {
    return Status::invalid(fmt::format("--drop {}: the run that a copy is of may be on elsewhere", text))
        .hint("remove the folder yourself where that run is done, or gone");
  }
  return Status::invalid(fmt::format("--drop {}: there is no such state{}", text,
                                     did_you_mean(text, {"failed", "killed", "interrupted", "empty"})));
}

std::set<fs::path> models_of(const std::vector<fs::path>& runs) {
  std::set<fs::path> models;
  for (const auto& run : runs) {
    for (const char* name : {"model", "teacher"}) {
      std::error_code error;
      if (!fs::is_symlink(run / name, error)) continue;
      const fs::path target = fs::canonical(run / name, error);
      if (!error) models.insert(target);
    }
  }
  return models;
}

std::vector<Removal> removals_of(const RunEntry& run, const PruneRule& rule, const std::set<fs::path>& needed,
                                 double now) {
  std::vector<Removal> removals;
  if (run.state == State::kOn || run.state == State::kCopy || !run.problem.empty()) return removals;
  const double age = run.ended ? now - *run.ended : 0;  // one that cannot be told is taken for young
  const bool old_enough = rule.drop_after <= 0 || age >= rule.drop_after;
  if (rule.drop.contains(run.state) && old_enough) {
    add(removals, run.dir, std::string(to_string(run.state)), needed);
    if (!removals.empty()) return removals;
  }
  if (rule.checkpoints) add_checkpoints(removals, run.dir, *rule.checkpoints, needed);
  if (run.state != State::kDone) return removals;
  if (rule.trajectories && age >= *rule.trajectories)
    add(removals, run.dir / "trajectories", "of a run that is done and old enough", needed);
  for (const char* name : {"logs", "tb"}) {
    if (rule.logs && age >= *rule.logs) add(removals, run.dir / name, "of a run that is done and old enough", needed);
  }
  return removals;
}

Result<std::vector<Removal>> prune(const fs::path& run_dir, const PruneRule& rule, const std::set<fs::path>& needed,
                                   double now) {
  TRY(dashboard::check_run_directory(run_dir));
  const auto claim = TRY(run::claim_run_dir(run_dir));
  sweep_pruned(run_dir);
  sweep_pruned(run_dir / "checkpoints");
  auto removals = removals_of(read_entry(run_dir), rule, needed, now);
  for (const auto& removal : removals) {
    // What a killed run left outside of its directory can be found by its directory alone.
    if (removal.path == run_dir) {
      if (const auto layout = run::RunLayout::open(run_dir)) (void)run::Supervisor::sweep(run_dir, *layout);
    }
    TRY(remove_whole(removal.path));
  }
  return removals;
}

void sweep_pruned(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with('.') && name.ends_with(kRemoved)) left.push_back(entry.path());
  }
  for (const auto& path : left) fs::remove_all(path, error);
}

}  // namespace tandem::archive
