#include "envs/tasks/task_set.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/digest.h"
#include "base/text.h"
#include "envs/tasks/harbor.h"
#include "envs/tasks/humanevalpack.h"
#include "envs/tasks/mistakes.h"
#include "envs/tasks/swe_bench.h"
#include "envs/tasks/terminal_bench.h"
#include "envs/tasks/terminal_bench_folder.h"
#include "envs/tasks/yaml_task.h"

namespace tandem::envs {
namespace {

constexpr size_t kMostTasks = 100'000;
constexpr uint64_t kTaskSetMostBytes = uint64_t{2} << 30;  // of the files of all tasks, which are held in memory
constexpr int kTaskSetDeepest = 16;                        // folders below the set

bool is_yaml(const fs::path& path) { return path.extension() == ".yaml" || path.extension() == ".yml"; }

// Collects the tasks below a path, in the order of their names.
class TaskSetWalk {
 public:
  TaskSetWalk(const fs::path& root, const TaskSetOptions& options)
      : root_(root), recipes_(options.recipes), leave_out_(options.leave_out) {
    const auto absolute = fs::absolute(root).lexically_normal();
    own_name_ = absolute.has_filename() ? absolute.stem().string() : absolute.parent_path().stem().string();
  }

  void visit(const fs::path& path, int depth = 0) {
    if (depth > kTaskSetDeepest) return mistakes_.add(path.string(), 0, "is too deep; does a link lead back?");
    std::error_code error;
    if (fs::is_regular_file(path, error)) return visit_file(path);
    if (!fs::is_directory(path, error)) return mistakes_.add(path.string(), 0, "is neither a file nor a folder");
    if (fs::exists(path / "task.toml", error)) {
      Mistakes why;
      auto task = read_harbor_task(path, recipes_, why);
      if (!task) return skip(path, why);
      if (is_built_image(task->image)) recipes_of_images_[task->image] = path / "environment";
      return add_foreign(std::move(*task), path);
    }
    if (is_terminal_bench_task(path)) {
      Mistakes why;
      auto task = read_terminal_bench_task(path, recipes_, why);
      if (!task) return skip(path, why);
      if (is_built_image(task->image)) recipes_of_images_[task->image] = path;
      return add_foreign(std::move(*task), path);
    }
    std::vector<fs::path> entries;
    for (const auto& entry : fs::directory_iterator(path, error)) {
      const auto name = entry.path().filename().string();
      const bool task = is_yaml(entry.path()) || entry.path().extension() == ".jsonl" || entry.is_directory(error);
      if (!name.starts_with('.') && task) entries.push_back(entry.path());
    }
    if (error) return mistakes_.add(path.string(), 0, error.message());
    std::sort(entries.begin(), entries.end());
    // A folder that holds no tasks is data of those beside it.
    for (const auto& entry : entries) {
      if (!is_data(entry)) visit(entry, depth + 1);
    }
  }

  std::vector<SkippedTask> take_skipped() { return std::move(skipped_); }
  std::map<std::string, fs::path> take_recipes() { return std::move(recipes_of_images_); }

  Result<std::vector<Task>> take() {
    std::stable_sort(tasks_.begin(), tasks_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    for (size_t i = 1; i < tasks_.size(); ++i) {
      if (tasks_[i].name == tasks_[i - 1].name)
        mistakes_.add(root_.string(), 0, "two tasks are called " + tasks_[i].name);
    }
    TRY(mistakes_.status());
    if (tasks_.empty() && !skipped_.empty()) {
      constexpr size_t kMostTold = 20;
      std::string text;
      for (size_t i = 0; i < std::min(kMostTold, skipped_.size()); ++i)
        text += (text.empty() ? "" : "\n") + join(skipped_[i].why, "\n");
      if (skipped_.size() > kMostTold) text += fmt::format("\n... and {} more tasks", skipped_.size() - kMostTold);
      return fail(Status::invalid(std::move(text)));
    }
    if (tasks_.empty()) {
      return fail(Status::not_found(root_.string() + " holds no tasks")
                      .hint("a task is a .yaml file, a line of a .jsonl, or a folder with task.toml or task.yaml"));
    }
    return std::move(tasks_);
  }

 private:
  void visit_file(const fs::path& file) {
    if (is_yaml(file)) {
      if (auto task = read_yaml_task(file, mistakes_, bases_)) add(std::move(*task), file);
    } else if (file.extension() == ".jsonl") {
      const bool is_foreign = is_swe_bench(file);
      Mistakes why;
      auto tasks = is_foreign ? read_swe_bench(file, why) : read_humanevalpack(file, mistakes_);
      for (auto& line : why.take()) skipped_.push_back({line.substr(0, line.find(": ")), {line}, false});
      for (auto& task : tasks) is_foreign ? add_foreign(std::move(task), file) : add(std::move(task), file);
    } else {
      mistakes_.add(file.string(), 0, "is no task; expected .yaml, or .jsonl of HumanEvalPack or SWE-bench");
    }
  }

  // Below a folder that has tasks of its own beside it, `files:` may refer to folders with YAML of another kind: those
  // are told apart by a name that says so.
  static bool is_data(const fs::path& path) {
    std::error_code error;
    return fs::is_directory(path, error) && path.filename().string().ends_with(".files");
  }

  std::string name_by(const fs::path& source) const {
    auto relative = source.lexically_relative(root_);
    if (relative.empty() || relative == ".") relative = fs::absolute(source).lexically_normal().filename();
    if (relative.empty()) relative = fs::absolute(source).lexically_normal().parent_path().filename();
    if (is_yaml(source)) relative.replace_extension();
    return relative.generic_string();
  }

  void skip(const fs::path& source, Mistakes& why) { skipped_.push_back({name_by(source), why.take(), true}); }

  void add_foreign(Task task, const fs::path& source) {
    if (task.name.empty()) task.name = name_by(source);
    if (auto why = leave_out_ ? leave_out_(task) : std::string(); !why.empty())
      return skipped_.push_back({task.name, {std::move(why)}, false});
    add(std::move(task), source);
  }

  void add(Task task, const fs::path& source) {
    if (tasks_.size() == kMostTasks)
      return mistakes_.add(source.string(), 0, fmt::format("is beyond {} tasks", kMostTasks));
    bytes_ += bytes_of(task.files) + bytes_of(task.solution.files);
    if (task.expectation.commands) bytes_ += bytes_of(task.expectation.commands->files);
    for (const auto& step : task.steps) {
      bytes_ += bytes_of(step.files) + bytes_of(step.solution.files);
      if (step.expectation.commands) bytes_ += bytes_of(step.expectation.commands->files);
    }
    if (bytes_ > kTaskSetMostBytes) {
      return mistakes_.add(source.string(), 0,
                           fmt::format("the tasks up to here have more than {} of files; split the set",
                                       format_bytes(kTaskSetMostBytes)));
    }
    if (task.name.empty()) task.name = name_by(source);
    if (task.spec.kind.empty()) {
      const auto slash = task.name.find('/');
      task.spec.kind = slash == std::string::npos ? own_name_ : task.name.substr(0, slash);
      if (const auto why = why_no_kind(task.spec.kind); !why.empty()) {
        mistakes_.add(source.string(), 0,
                      fmt::format("the folder \"{}\" names a kind of task, which {}; rename it or give `kind:`",
                                  task.spec.kind, why));
      }
    }
    tasks_.push_back(std::move(task));
  }

  static uint64_t bytes_of(const Files& files) {
    uint64_t bytes = 0;
    for (const auto& [path, content] : files) bytes += content.size();
    return bytes;
  }

  const fs::path root_;
  const Recipes recipes_;
  const std::function<std::string(const Task&)> leave_out_;
  std::map<std::string, fs::path> recipes_of_images_;
  std::string own_name_;
  uint64_t bytes_ = 0;
  Mistakes mistakes_;
  BaseSources bases_;
  std::vector<Task> tasks_;
  std::vector<SkippedTask> skipped_;
};

// Tells the skipped tasks, the first ones with their reasons.
void tell(const std::vector<SkippedTask>& skipped, size_t left) {
  constexpr size_t kMostTold = 10;
  if (skipped.empty()) return;
  spdlog::warn("{} of {} tasks are left out, for they cannot be followed here", skipped.size(), skipped.size() + left);
  for (size_t i = 0; i < std::min(kMostTold, skipped.size()); ++i)
    spdlog::warn("left out: {}: {}", skipped[i].name, skipped[i].why.empty() ? "" : skipped[i].why.front());
}

bool is_held_out(const std::string& name, double share) {
  constexpr uint64_t kParts = 1'000'000;
  return static_cast<double>(digest_of(name).low % kParts) < share * kParts;
}

// By content, which need not be text.
Json json_of(const Files& files) {
  Json json = Json::object();
  for (const auto& [path, content] : files) json[path] = digest_of(content).hex();
  return json;
}

Json json_of(const CommandCheck& check) {
  Json json = {{"files", json_of(check.files)},
               {"programs", check.programs},
               {"folders", check.folders},
               {"leaves_reward", check.leaves_reward}};
  if (check.tests) json["tests"] = *check.tests;
  for (const auto& each : check.commands) {
    json["commands"].push_back({each.command, each.exit_code, each.output.value_or("(any)"), each.seconds});
  }
  return json;
}

}  // namespace

Result<TaskSet> TaskSet::read(const fs::path& path, const TaskSetOptions& options) {
  std::error_code error;
  if (!fs::exists(path, error)) return fail(Status::not_found("there is no file or folder " + path.string()));
  TaskSetWalk walk(path, options);
  walk.visit(path);
  TaskSet set;
  set.tasks_ = TRY(walk.take());
  set.skipped_ = walk.take_skipped();
  set.recipes_of_images_ = walk.take_recipes();
  if (options.tells_skipped) tell(set.skipped_, set.tasks_.size());
  if (!options.kinds.empty()) {
    for (auto& task : set.tasks_) set.places_[{task.spec.kind, Split::kTrain}];
    const auto known = set.kinds();
    const std::vector<std::string_view> names(known.begin(), known.end());
    for (const auto& kind : options.kinds) {
      if (std::find(known.begin(), known.end(), kind) != known.end()) continue;
      return fail(Status::invalid(
          fmt::format("{} has no tasks of kind \"{}\"{}", path.string(), kind, did_you_mean(kind, names))));
    }
    set.places_.clear();
    std::erase_if(set.tasks_, [&](const Task& task) {
      return std::find(options.kinds.begin(), options.kinds.end(), task.spec.kind) == options.kinds.end();
    });
  }
  for (size_t i = 0; i < set.tasks_.size(); ++i) {
    TaskSpec& spec = set.tasks_[i].spec;
    spec.split = is_held_out(set.tasks_[i].name, options.heldout_share) ? Split::kHeldout : Split::kTrain;
    auto& places = set.places_[{spec.kind, spec.split}];
    spec.seed = places.size();
    places.push_back(i);
  }
  return set;
}

std::vector<std::string> TaskSet::kinds() const {
  std::vector<std::string> kinds;
  for (const auto& [place, tasks] : places_) {
    if (kinds.empty() || kinds.back() != place.first) kinds.push_back(place.first);
  }
  return kinds;
}

size_t TaskSet::count(const std::string& kind, Split split) const {
  const auto found = places_.find({kind, split});
  return found == places_.end() ? 0 : found->second.size();
}

Result<Task> TaskSet::task(const TaskSpec& spec) const {
  const auto found = places_.find({spec.kind, spec.split});
  if (found == places_.end() || spec.seed >= found->second.size()) {
    return fail(Status::not_found("the set of tasks has no " + spec.id()));
  }
  return tasks_[found->second[spec.seed]];
}

const Task* TaskSet::find(std::string_view name) const {
  const auto found = std::find_if(tasks_.begin(), tasks_.end(), [&](const Task& task) { return task.name == name; });
  return found == tasks_.end() ? nullptr : &*found;
}

std::string digest_of_task(const Task& task) {
  const auto& expected = task.expectation;
  Json json = {{"kind", task.spec.kind},
               {"name", task.name},
               {"instruction", task.instruction},
               {"files", json_of(task.files)},
               {"programs", task.programs},
               {"setup", task.setup},
               {"needs", task.needs},
               {"links", task.links},
               {"turns", task.max_turns},
               {"ends_on_change", task.ends_on_change},
               {"contains", json_of(expected.contains)},
               {"answer", expected.answer.value_or("(any)")},
               {"solution_files", json_of(task.solution.files)},
               {"solution_answer", task.solution.answer}};
  if (task.disk_mb != kUsualDiskMb) json["disk_mb"] = task.disk_mb;
  if (expected.files) json["files_after"] = json_of(*expected.files);
  if (expected.hidden_test) json["hidden_test"] = {expected.hidden_test->driver, expected.hidden_test->expected};
  if (expected.commands) json["commands"] = json_of(*expected.commands);
  if (expected.calls) {
    const auto& calls = *expected.calls;
    json["calls"] = {calls.module, calls.function, calls.reference, calls.test, calls.seconds};
  }
  for (const auto& turn : task.solution.turns) {
    Json calls = Json::array();
    for (const auto& call : turn) calls.push_back({call.name, call.arguments});
    json["solution"].push_back(std::move(calls));
  }
  // What older tasks do not have is not in their digests.
  if (!task.image.empty()) json["image"] = task.image;
  if (task.base) json["base"] = task.base->digest;
  if (!task.network.empty()) json["network"] = task.network.entries();
  for (const auto& server : task.servers) json["servers"].push_back({server.name, server.command});
  for (const auto& step : task.steps) {
    Task of_step;
    of_step.name = step.name;
    of_step.instruction = step.instruction;
    of_step.files = step.files;
    of_step.programs = step.programs;
    of_step.setup = step.setup;
    of_step.expectation = step.expectation;
    of_step.solution = step.solution;
    json["steps"].push_back({digest_of_task(of_step), step.least_reward ? Json(*step.least_reward) : Json()});
  }
  if (task.last_step_counts) json["last_step_counts"] = true;
  return digest_of(dump_json(json)).hex();
}

}  // namespace tandem::envs
