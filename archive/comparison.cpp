#include "archive/comparison.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "dashboard/heldout.h"
#include "dashboard/summary.h"
#include "run/tasks.h"

namespace tandem::archive {
namespace {

struct ReadRun {
  run::RunConfig config;
  dashboard::RunFiles files;
  Json summary;
};

Result<ReadRun> read_whole(const fs::path& dir) {
  TRY(dashboard::check_run_directory(dir));
  auto config = TRY(run::read_resolved(dir));
  auto files = TRY(dashboard::read_run(dir, TRY(run::plan_of(config, dir))));
  Json summary = dashboard::summarise(files);
  return ReadRun{.config = std::move(config), .files = std::move(files), .summary = std::move(summary)};
}

std::vector<run::ConfigChange> differences_of(const run::RunConfig& before, const run::RunConfig& after) {
  const Json left = run::flat(before), right = run::flat(after);
  std::vector<run::ConfigChange> changes;
  for (const auto& [key, value] : left.items()) {
    const auto other = right.find(key);
    if (other == right.end() || *other != value)
      changes.push_back({key, value, other == right.end() ? Json() : *other});
  }
  for (const auto& [key, value] : right.items()) {
    if (!left.contains(key)) changes.push_back({key, Json(), value});
  }
  return changes;
}

std::optional<double> mean_of_last(const std::vector<Json>& steps, const char* key) {
  double sum = 0;
  int count = 0;
  for (size_t i = steps.size() > kLastSteps ? steps.size() - kLastSteps : 0; i < steps.size(); ++i) {
    if (const auto value = dashboard::maybe_number_at(steps[i], key)) sum += *value, ++count;
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

std::optional<double> number_in(const Json& summary, const char* group, const char* key) {
  const auto found = summary.find(group);
  return found == summary.end() ? std::nullopt : dashboard::maybe_number_at(*found, key);
}

Figure rate_figure(std::string name, const std::vector<dashboard::TaskScore>& before,
                   const std::vector<dashboard::TaskScore>& after) {
  Figure figure{.name = std::move(name)};
  figure.before_interval = dashboard::pass_rate(before);
  figure.after_interval = dashboard::pass_rate(after);
  if (figure.before_interval) figure.before = figure.before_interval->value;
  if (figure.after_interval) figure.after = figure.after_interval->value;
  return figure;
}

std::vector<Figure> figures_of(const Comparison& runs, const ReadRun& before, const ReadRun& after) {
  using dashboard::Decoding;
  std::vector<Figure> figures;
  for (const auto& [decoding, prefix] :
       {std::pair(Decoding::kSampled, "heldout."), std::pair(Decoding::kGreedy, "heldout.greedy.")}) {
    const auto left = before.files.totals.heldout.of(decoding), right = after.files.totals.heldout.of(decoding);
    figures.push_back(rate_figure(std::string(prefix) + "before", left.before, right.before));
    figures.push_back(rate_figure(std::string(prefix) + "after", left.after, right.after));
  }
  const auto add = [&](std::string name, std::optional<double> left, std::optional<double> right) {
    figures.push_back(
        {.name = std::move(name), .before = left, .after = right, .before_interval = {}, .after_interval = {}});
  };
  add("steps", static_cast<double>(runs.before.step), static_cast<double>(runs.after.step));
  for (const char* key : {"success", "loss", "entropy", "kl", "mismatch_kl", "grad_norm", "step_seconds"})
    add(key, mean_of_last(before.files.steps, key), mean_of_last(after.files.steps, key));
  for (const char* key : {"prompt", "generated", "trained"})
    add(std::string("tokens.") + key, number_in(before.summary, "tokens", key),
        number_in(after.summary, "tokens", key));
  for (const char* key : {"admitted", "trained"})
    add(std::string("episodes.") + key, number_in(before.summary, "episodes", key),
        number_in(after.summary, "episodes", key));
  add("wall_seconds", runs.before.wall_seconds, runs.after.wall_seconds);
  add("core_seconds", runs.before.core_seconds, runs.after.core_seconds);
  add("gpu_seconds", runs.before.gpu_seconds, runs.after.gpu_seconds);
  std::erase_if(figures, [](const Figure& figure) { return !figure.before && !figure.after; });
  return figures;
}

// What the held-out tasks are made of: a kind and a number name the same task only where this is the same.
Result<Json> task_source(const run::RunConfig& config, const fs::path& dir) {
  if (config.tasks.path.empty()) return Json(config.tasks.heldout_split);
  const Json record = TRY(run::read_tasks_record(dir));
  if (!record.contains("tasks")) return fail(Status::corrupt("has no tasks").at((dir / "tasks.json").string()));
  return record.at("tasks");
}

Status add_difference(Comparison& runs, const ReadRun& before, const ReadRun& after) {
  if (TRY(task_source(before.config, before.files.dir)) != TRY(task_source(after.config, after.files.dir))) {
    runs.unpaired = "the two runs have other task sets";
    return {};
  }
  const auto left = before.files.totals.heldout.of(dashboard::Decoding::kSampled);
  const auto right = after.files.totals.heldout.of(dashboard::Decoding::kSampled);
  std::map<dashboard::Heldout::Task, dashboard::TaskScore> by_task;
  for (size_t i = 0; i < left.tasks.size(); ++i) by_task[left.tasks[i]] = left.after[i];
  std::vector<dashboard::TaskScore> of_before, of_after;
  for (size_t i = 0; i < right.tasks.size(); ++i) {
    const auto found = by_task.find(right.tasks[i]);
    if (found == by_task.end() || found->second.samples == 0 || right.after[i].samples == 0) continue;
    of_before.push_back(found->second);
    of_after.push_back(right.after[i]);
  }
  runs.paired_tasks = of_before.size();
  runs.difference = dashboard::paired_gain(of_before, of_after);
  if (!runs.difference) runs.unpaired = "no held-out task was measured after training by both";
  return {};
}

Json interval_of(const std::optional<dashboard::Estimate>& estimate) {
  return estimate ? Json{estimate->low, estimate->high} : Json();
}

}  // namespace

Result<Comparison> compare_runs(const fs::path& before, const fs::path& after) {
  const ReadRun left = TRY(read_whole(before)), right = TRY(read_whole(after));
  Comparison runs{.before = entry_of(left.files, left.summary), .after = entry_of(right.files, right.summary)};
  runs.config = differences_of(left.config, right.config);
  runs.figures = figures_of(runs, left, right);
  TRY(add_difference(runs, left, right));
  return runs;
}

Json to_json(const Comparison& runs, double now) {
  Json config = Json::object(), figures = Json::object();
  for (const auto& change : runs.config) config[change.key] = {{"before", change.before}, {"after", change.after}};
  const auto number = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
  for (const auto& figure : runs.figures) {
    Json& object = figures[figure.name];
    object = {{"before", number(figure.before)}, {"after", number(figure.after)}};
    if (figure.before_interval || figure.after_interval) {
      object["before_ci95"] = interval_of(figure.before_interval);
      object["after_ci95"] = interval_of(figure.after_interval);
    }
  }
  Json difference;
  if (runs.difference) {
    difference = {{"points", runs.difference->value},
                  {"ci95", interval_of(runs.difference)},
                  {"tasks", static_cast<uint64_t>(runs.paired_tasks)}};
  }
  return {{"before", to_json(runs.before, now)}, {"after", to_json(runs.after, now)},
          {"config", std::move(config)},         {"figures", std::move(figures)},
          {"difference", std::move(difference)}, {"unpaired", runs.unpaired.empty() ? Json() : Json(runs.unpaired)}};
}

}  // namespace tandem::archive
