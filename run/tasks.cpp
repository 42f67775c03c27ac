#include "run/tasks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/json_file.h"
#include "envs/backends/choosing_backend.h"
#include "envs/tasks/needs.h"
#include "envs/tasks/workspace/kinds.h"
#include "run/rewards.h"

namespace tandem::run {
namespace {

using envs::Split;

fs::path record_path(const fs::path& run_dir) { return run_dir / "tasks.json"; }

Result<envs::TaskSet> read_set(const RunConfig& config, const fs::path& path,
                               std::function<std::string(const envs::Task&)> leave_out) {
  return envs::TaskSet::read(path, {.heldout_share = config.tasks.heldout_share,
                                    .kinds = config.tasks.set_kinds,
                                    .recipes = envs::recipes_from(config.tasks.recipes),
                                    .leave_out = std::move(leave_out)});
}

Json json_of(const envs::TaskSet& set) {
  Json tasks = Json::array();
  for (const auto& task : set.tasks()) {
    tasks.push_back({{"name", task.name},
                     {"kind", task.spec.kind},
                     {"split", envs::to_string(task.spec.split)},
                     {"number", task.spec.seed},
                     {"digest", envs::digest_of_task(task)}});
  }
  return tasks;
}

// All that is lacking, for up to five tasks.
Status check_needs_of(const envs::TaskSet& set, const RunConfig& config) {
  std::set<std::string> images;
  for (const auto& task : set.tasks()) {
    if (!task.image.empty()) images.insert(task.image);
  }
  TRY(envs::check_images(envs::engine_place(config.env.engine), images));
  std::vector<std::string> lines;
  size_t lacking = 0;
  for (const auto& task : set.tasks()) {
    const Status status = envs::check_needs(task, !config.env.packages.pypi.empty());
    if (status.ok()) continue;
    if (++lacking <= 5) lines.push_back(status.message());
  }
  if (lacking == 0) return {};
  if (lacking > lines.size()) lines.push_back(fmt::format("... and {} more tasks", lacking - lines.size()));
  return Status::unfit(fmt::format("{}", fmt::join(lines, "\n")))
      .hint("install what is missing, or leave those tasks out (tasks.set_kinds)");
}

// Tests that take longer have no verdict. Most take less than what they are given, so this is no mistake.
void tell_slow_tests(const envs::TaskSet& set, const RunConfig& config) {
  const double most = grade_seconds_of(config);
  size_t slower = 0;
  double longest = 0;
  for (const auto& task : set.tasks()) {
    const double seconds = envs::seconds_of(task.expectation);
    if (seconds > most) ++slower;
    longest = std::max(longest, seconds);
  }
  if (slower == 0) return;
  spdlog::warn(
      "tests of {} of {} tasks may take up to {:.0f} s, and here they are ended after {:.0f} s, without a verdict "
      "(rollout.episode_seconds={:.0f})",
      slower, set.tasks().size(), longest, most, config.rollout.episode_seconds);
}

size_t count(const envs::TaskSet& set, Split split) {
  size_t total = 0;
  for (const auto& kind : set.kinds()) total += set.count(kind, split);
  return total;
}

}  // namespace

Result<envs::TaskSet> read_task_set(const RunConfig& config) {
  auto set = TRY(read_set(config, config.tasks.path, [&](const envs::Task& task) {
    return envs::check_needs(task, !config.env.packages.pypi.empty()).message();
  }));
  if (config.run.steps > 0 && count(set, Split::kTrain) == 0) {
    return fail(Status::invalid(fmt::format("all {} tasks of {} are held out; nothing is left to train on",
                                            set.tasks().size(), config.tasks.path))
                    .hint("lower tasks.heldout_share"));
  }
  TRY(check_machine(config, set));
  tell_slow_tests(set, config);
  const auto kinds = set.kinds();
  const std::vector<std::string_view> known(kinds.begin(), kinds.end());
  const auto algorithm = TRY(algorithm_of(config));
  for (const trainer::Algorithm& part : algorithm.parts) {
    for (const std::string& kind : part.kinds) TRY(check_kind_of_algorithm(kind, known));
  }
  return set;
}

Status check_machine(const RunConfig& config, const envs::TaskSet& set) { return check_needs_of(set, config); }

Result<Json> read_tasks_record(const fs::path& run_dir) { return read_json_file(record_path(run_dir), kTasksFormat); }

Status record_tasks(const RunConfig& config, const envs::TaskSet& set, const fs::path& run_dir) {
  const Json record = {{"path", fs::absolute(config.tasks.path).lexically_normal().string()}, {"tasks", json_of(set)}};
  return write_file(record_path(run_dir), with_format(record, kTasksFormat).dump(2) + "\n");
}

Result<envs::TaskSet> read_recorded_tasks(const RunConfig& config, const fs::path& run_dir) {
  const fs::path path = record_path(run_dir);
  const Json record = TRY(read_tasks_record(run_dir));
  if (!record.contains("path") || !record.at("path").is_string() || !record.contains("tasks")) {
    return fail(Status::corrupt(path.string() + " is not what was written"));
  }
  const auto source = record.at("path").get<std::string>();
  const Json& then = record.at("tasks");
  std::set<std::string> names;  // what lacked something when the run began stays left out
  for (const Json& task : then) names.insert(task.value("name", std::string()));
  auto set = TRY(read_set(config, source, [&](const envs::Task& task) {
    return names.contains(task.name) ? std::string() : "was not there, or lacked something, when the run began";
  }));
  const Json now = json_of(set);
  if (now == then) return set;
  std::string what =
      fmt::format("it has {} task{}, where there were {}", now.size(), now.size() == 1 ? "" : "s", then.size());
  for (size_t i = 0; now.size() == then.size() && i < now.size(); ++i) {
    if (now[i] == then[i]) continue;
    what = fmt::format("task {} is another one", now[i].at("name").get<std::string>());
    break;
  }
  return fail(Status::invalid(fmt::format("the tasks in {} have changed since this run began: {}", source, what))
                  .hint("put them back as they were, or start a new run"));
}

std::vector<envs::TaskSpec> heldout_specs(const RunConfig& config, const std::optional<envs::TaskSet>& tasks) {
  std::vector<envs::TaskSpec> specs;
  const auto wanted = static_cast<size_t>(config.tasks.heldout);
  if (tasks) {
    for (const auto& task : tasks->tasks()) {
      if (task.spec.split == envs::Split::kHeldout) specs.push_back(task.spec);
    }
    // As the ledger draws them: the first of each kind, then the second ones.
    const auto place = [](const envs::TaskSpec& spec) { return std::tie(spec.seed, spec.kind); };
    std::sort(specs.begin(), specs.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
    specs.resize(std::min(specs.size(), wanted));
    return specs;
  }
  const size_t kinds = config.tasks.kinds.size();
  for (size_t task = 0; task < wanted; ++task) {
    specs.push_back({.kind = config.tasks.kinds[task % kinds],
                     .split = *envs::split_from(config.tasks.heldout_split),
                     .seed = static_cast<uint64_t>(task / kinds)});
  }
  return specs;
}

std::string describe_kinds(const RunConfig& config) {
  const auto family = envs::every_kind();
  std::vector<std::string> own, external;
  for (const auto& kind : config.tasks.kinds)
    (std::find(family.begin(), family.end(), kind) != family.end() ? own : external).push_back(kind);
  std::vector<std::string> parts;
  if (!own.empty()) parts.push_back(fmt::format("the workspace family: {}", fmt::join(own, ", ")));
  if (!external.empty()) parts.push_back(fmt::format("of env.external: {}", fmt::join(external, ", ")));
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string describe(const RunConfig& config, const envs::TaskSet& set) {
  std::vector<std::string> kinds;
  for (const auto& kind : set.kinds()) {
    kinds.push_back(fmt::format("{} {}", kind, set.count(kind, Split::kTrain) + set.count(kind, Split::kHeldout)));
  }
  const size_t all = set.tasks().size();
  return fmt::format("{} task{} of {}: {} train, {} held out; {}", all, all == 1 ? "" : "s", config.tasks.path,
                     count(set, Split::kTrain), count(set, Split::kHeldout), fmt::join(kinds, ", "));
}

}  // namespace tandem::run
