#include "cli/tasks/task_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "envs/tasks/task_set.h"
#include "envs/tasks/workspace/kinds.h"

namespace tandem::cli {
namespace {

constexpr std::string_view kWorkspace = "workspace";

Result<std::vector<envs::Task>> made_tasks(const std::string& kind, int count) {
  std::vector<std::string> kinds = {kind};
  if (kind.empty()) kinds.assign(envs::task_kinds().begin(), envs::task_kinds().end());
  std::vector<envs::Task> tasks;
  for (const auto& each : kinds) {
    for (int seed = 0; seed < count; ++seed) {
      tasks.push_back(TRY(envs::make_task({.kind = each, .seed = static_cast<uint64_t>(seed)})));
    }
  }
  return tasks;
}

bool is_named(const envs::Task& task, const std::string& name) {
  const auto own = name_of(task);
  return own == name || own.starts_with(name + "/");
}

}  // namespace

std::string name_of(const envs::Task& task) { return task.name.empty() ? task.spec.id() : task.name; }

std::string check_of(const envs::Task& task) {
  const auto& expected = task.expectation;
  std::vector<std::string> parts;
  if (expected.commands) {
    const auto& check = *expected.commands;
    const auto counted = [](size_t count, const char* what) {
      return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
    };
    if (check.leaves_reward)
      parts.emplace_back("tests/test.sh");
    else if (check.tests)
      parts.push_back(check.tests->empty() ? "all reported tests" : counted(check.tests->size(), "named test"));
    else
      parts.push_back(counted(check.commands.size(), "command"));
  }
  if (expected.calls) parts.emplace_back("calls of " + expected.calls->function);
  if (expected.hidden_test) parts.emplace_back("hidden tests");
  if (expected.files || !expected.contains.empty()) parts.emplace_back("files");
  if (expected.answer) parts.emplace_back("answer");
  return join(parts, ", ");
}

Result<std::vector<envs::Task>> read_tasks(const std::string& path, int count, const std::vector<std::string>& names,
                                           envs::Recipes recipes, std::vector<envs::SkippedTask>* skipped) {
  std::vector<envs::Task> tasks;
  if (path == kWorkspace || path.starts_with("workspace:")) {
    tasks = TRY(made_tasks(path == kWorkspace ? "" : path.substr(kWorkspace.size() + 1), count));
  } else {
    const auto set = TRY(envs::TaskSet::read(path, {.kinds = {}, .recipes = recipes, .tells_skipped = !skipped}));
    if (skipped) skipped->assign(set.skipped().begin(), set.skipped().end());
    tasks.assign(set.tasks().begin(), set.tasks().end());
  }
  if (names.empty()) return tasks;
  std::vector<std::string> own;
  for (const auto& task : tasks) own.push_back(name_of(task));
  const std::vector<std::string_view> known(own.begin(), own.end());
  for (const auto& name : names) {
    if (std::any_of(tasks.begin(), tasks.end(), [&](const auto& task) { return is_named(task, name); })) continue;
    // A model's task is often called by its last part alone.
    const auto ends = std::ranges::find_if(own, [&](const auto& each) { return each.ends_with("/" + name); });
    const auto near = ends != own.end() ? *ends : nearest(name, known);
    return fail(Status::not_found(
        fmt::format("{} has no task \"{}\"{}", path, name, near.empty() ? "" : "; did you mean \"" + near + "\"?")));
  }
  std::erase_if(tasks, [&](const auto& task) {
    return std::none_of(names.begin(), names.end(), [&](const auto& name) { return is_named(task, name); });
  });
  return tasks;
}

}  // namespace tandem::cli
