#include "eval/tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "envs/backends/choosing_backend.h"
#include "envs/tasks/needs.h"
#include "envs/tasks/task_set.h"
#include "envs/tasks/workspace/kinds.h"

namespace tandem::eval {
namespace {

constexpr int kWorkspaceTasks = 200;  // that have no end
constexpr size_t kShownMistakes = 5;

Result<std::vector<envs::Task>> made_tasks(const Suite& suite) {
  const auto split = TRY(envs::split_from(suite.tasks.split.empty() ? "heldout" : suite.tasks.split));
  const int limit = suite.tasks.limit > 0 ? suite.tasks.limit : kWorkspaceTasks;
  const size_t kinds = suite.tasks.kinds.size();
  std::vector<envs::Task> tasks;
  for (size_t i = 0; i < static_cast<size_t>(limit); ++i) {
    tasks.push_back(
        TRY(envs::make_task({.kind = suite.tasks.kinds[i % kinds], .split = split, .seed = uint64_t{i / kinds}})));
  }
  return tasks;
}

Result<std::vector<envs::Task>> written_tasks(const Suite& suite) {
  const auto set = TRY(envs::TaskSet::read(
      suite.tasks.path, {.heldout_share = suite.tasks.heldout_share,
                         .kinds = suite.tasks.set_kinds,
                         .recipes = envs::recipes_from(suite.tasks.recipes),
                         .leave_out = [&](const envs::Task& task) {
                           return envs::check_needs(task, !suite.env.packages.pypi.empty()).message();
                         }}));
  struct Placed {
    size_t number = 0;  // in its kind
    const envs::Task* task = nullptr;
  };
  std::vector<Placed> placed;
  std::map<std::string, size_t> of_kind;
  for (const auto& task : set.tasks()) {
    if (!suite.tasks.split.empty() && envs::to_string(task.spec.split) != suite.tasks.split) continue;
    placed.push_back({of_kind[task.spec.kind]++, &task});
  }
  if (placed.empty()) {
    return fail(Status::invalid(fmt::format("no task of {} is of the split {}", suite.tasks.path, suite.tasks.split))
                    .hint("raise tasks.heldout_share, or leave tasks.split out"));
  }
  std::stable_sort(placed.begin(), placed.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
  if (suite.tasks.limit > 0) placed.resize(std::min(placed.size(), static_cast<size_t>(suite.tasks.limit)));
  std::vector<envs::Task> tasks;
  for (const auto& each : placed) tasks.push_back(*each.task);
  return tasks;
}

// What an agent of an evaluation cannot be given yet.
Status check_kinds_of_task(const std::vector<envs::Task>& tasks) {
  for (const auto& task : tasks) {
    if (!task.steps.empty())
      return Status::invalid(fmt::format("task {} is in steps, which are not evaluated yet", name_of_task(task)))
          .hint("leave it out: tasks.set_kinds");
  }
  return {};
}

Status check_machine(const std::vector<envs::Task>& tasks, const Suite& suite) {
  std::set<std::string> images;
  for (const auto& task : tasks) {
    if (!task.image.empty()) images.insert(task.image);
  }
  TRY(envs::check_images(envs::engine_place(suite.env.engine), images));
  std::vector<std::string> lines;
  size_t lacking = 0;
  for (const auto& task : tasks) {
    const Status status = envs::check_needs(task, !suite.env.packages.pypi.empty());
    if (!status.ok() && ++lacking <= kShownMistakes) lines.push_back(status.message());
  }
  if (lacking == 0) return {};
  if (lacking > lines.size()) lines.push_back(fmt::format("... and {} more tasks", lacking - lines.size()));
  return Status::unfit(join(lines, "\n")).hint("install what is missing, or leave those tasks out (tasks.set_kinds)");
}

}  // namespace

Result<std::vector<envs::Task>> read_suite_tasks(const Suite& suite) {
  auto tasks = TRY(suite.tasks.path.empty() ? made_tasks(suite) : written_tasks(suite));
  TRY(check_kinds_of_task(tasks));
  TRY(check_machine(tasks, suite));
  return tasks;
}

std::string name_of_task(const envs::Task& task) { return task.name.empty() ? task.spec.id() : task.name; }

}  // namespace tandem::eval
