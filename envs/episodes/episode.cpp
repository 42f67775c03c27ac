#include "envs/episodes/episode.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "envs/episodes/installed_backend.h"
#include "envs/sandbox/capabilities.h"
#include "envs/sandbox/fields.h"
#include "envs/sandbox/spec_message.h"
#include "envs/tasks/command_check.h"
#include "envs/tasks/lint_count.h"
#include "envs/tasks/needs.h"
#include "envs/tools/process.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {
namespace {

constexpr double kPreparationSeconds = 20;  // of a command that is not the model's

std::vector<std::string> tools_of(const EpisodeOptions& options) {
  return options.tools.empty() ? prompted_tools() : options.tools;
}

std::optional<SandboxImage> image_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  return SandboxImage{.name = name};
}

void set_disk(SandboxSpec& spec, int mb) {
  const uint64_t disk = static_cast<uint64_t>(mb) << 20;
  spec.memory_bytes += disk - spec.disk_bytes;  // which is memory
  spec.disk_bytes = disk;
}

SandboxSpec spec_of(const Task& task, const EpisodeOptions& options) {
  SandboxSpec spec;
  spec.image = image_of(task.image);
  if (task.base) spec.base = task.base->tree;
  spec.links = task.links;
  set_disk(spec, task.disk_mb);
  spec.network = task.network;
  spec.packages = options.packages;
  spec.output_limit = options.output_limit;
  spec.call_time_limit_s = options.call_time_limit_s;
  spec.tools = tools_of(options);
  spec.sealable = options.branches;
  spec.holder = options.holder;
  spec.holder.task = task.name.empty() ? task.spec.id() : task.name;
  return spec;
}

// The output without what the tool adds for a model to read. A call that was refused or killed ran nothing to its end.
ToolOutcome as_printed(ToolOutcome outcome) {
  if (!outcome.ok && outcome.exit_code == 0) outcome.exit_code = 137;
  const auto note =
      outcome.exit_code == 0 ? std::string("[no output]\n") : "[exit code " + std::to_string(outcome.exit_code) + "]\n";
  if (outcome.exit_code != 0 ? outcome.output.ends_with(note) : outcome.output == note) {
    outcome.output.resize(outcome.output.size() - note.size());
  }
  return outcome;
}

struct Preparation {
  const Files& files;
  const std::set<std::string>& programs;
  const std::vector<std::string>& setup;
};

// What a task needs beside its files is there before the model looks. A command that fails is kInvalid.
Status prepare(Sandbox& sandbox, const Preparation& preparation, const Task& task, const EpisodeOptions& options) {
  TRY(sandbox.put(preparation.files));
  if (preparation.programs.empty() && preparation.setup.empty()) return {};
  SandboxSpec spec = spec_of(task, options);
  spec.call_time_limit_s = kPreparationSeconds;
  spec.tools.clear();
  sandbox.set_call_limits(spec);
  TRY(make_executable(sandbox, preparation.programs));
  for (const auto& command : preparation.setup) {
    const auto outcome = TRY(sandbox.call("run_terminal_cmd", {{"command", command}}));
    if (outcome.ok && outcome.exit_code == 0) continue;
    return Status::invalid("setup of " + task.name + " failed: `" + command + "` printed\n" + outcome.output);
  }
  sandbox.set_call_limits(spec_of(task, options));
  return {};
}

Status prepare(Sandbox& sandbox, const Task& task, const EpisodeOptions& options) {
  TRY(prepare(sandbox, {task.files, task.programs, task.setup}, task, options));
  if (task.steps.empty()) return {};
  const TaskStep& first = task.steps.front();
  return prepare(sandbox, {first.files, first.programs, first.setup}, task, options);
}

// What makes two episodes begin with the same.
ContentDigest key_of(const Preparation& preparation, const Preparation& step, const SandboxSpec& spec) {
  std::string bytes = encode(spec);
  if (spec.packages) put_text(bytes, spec.packages->identity() + '\n' + join(spec.packages->setup(), "\n"));
  put_text(bytes, spec.base ? spec.base->digest : "");
  for (const auto* part : {&preparation, &step}) {
    put_files(bytes, part->files);
    put_number(bytes, part->programs.size());
    for (const auto& path : part->programs) put_text(bytes, path);
    put_number(bytes, part->setup.size());
    for (const auto& command : part->setup) put_text(bytes, command);
  }
  return content_digest({bytes});
}

// Less is sooner put into a sandbox that is kept ready.
bool is_much(const Preparation& preparation) {
  constexpr size_t kManyFiles = 100, kManyBytes = 1 << 20;
  size_t bytes = 0;
  for (const auto& [path, content] : preparation.files) bytes += content.size();
  return !preparation.setup.empty() || preparation.files.size() >= kManyFiles || bytes >= kManyBytes;
}

// A sandbox in which the task can be begun.
Result<std::unique_ptr<Sandbox>> make_ready(SandboxBackend& plain, const Task& task, const EpisodeOptions& options) {
  InstalledBackend backend(plain, options.packages, options.prepared, python_needs(task));
  const auto spec = spec_of(task, options);
  const auto prepare_it = [&](Sandbox& sandbox) {
    const Status ready = prepare(sandbox, task, options);
    return ready.code() == Code::kInvalid ? Status::unavailable(ready.message()) : ready;
  };
  const TaskStep none, &first = task.steps.empty() ? none : task.steps.front();
  const Preparation all{task.files, task.programs, task.setup}, step{first.files, first.programs, first.setup};
  if (options.prepared && !spec.image && (is_much(all) || is_much(step)))
    return options.prepared->begin(backend, spec, key_of(all, step, spec), prepare_it);
  auto sandbox = TRY(backend.create(spec));
  TRY(prepare_it(*sandbox));
  return sandbox;
}

// Ends with an error of the infrastructure where that does not work: the files are not those that were left behind.
Status remove_paths(Sandbox& sandbox, const std::set<std::string>& paths) {
  constexpr size_t kLongestCommand = 60'000;  // of one word of a command line Linux takes twice as much
  std::string command;
  const auto run = [&]() -> Status {
    if (command.empty()) return {};
    const auto outcome = TRY(sandbox.call("run_terminal_cmd", {{"command", "rm -rf --" + std::exchange(command, "")}}));
    if (outcome.ok && outcome.exit_code == 0) return {};
    return Status::unavailable("files could not be removed: " + outcome.output);
  };
  for (const auto& path : paths) {
    command += " " + shell_quoted("./" + path);
    if (command.size() > kLongestCommand) TRY(run());
  }
  return run();
}

// What must go before the files of a place can be put over its base: also folders that became files.
std::set<std::string> gone_from(const BaseTree& base, const Place& place) {
  std::set<std::string> gone = place.removed;
  for (const auto& [path, content] : place.files) {
    const auto mode = mode_in_base(base, path);
    if (mode && !S_ISREG(*mode)) gone.insert(path);
  }
  return gone;
}

// What was left behind, in a sandbox that has the files of an image already. Files that are as they were stay, with
// links and whatever else is no file.
Status replace_files(Sandbox& sandbox, const Place& place) {
  const auto before = TRY(sandbox.collect()).files;
  std::set<std::string> gone;
  Files changed;
  for (const auto& [path, content] : before) {
    if (!place.files.contains(path) && !steers_tests(path)) gone.insert(path);
  }
  for (const auto& [path, content] : place.files) {
    const auto old = before.find(path);
    if (old != before.end() && old->second == content) continue;
    changed[path] = content;
    const auto below = before.lower_bound(path + "/");  // where a folder of that name was
    if (old != before.end() || (below != before.end() && below->first.starts_with(path + "/"))) gone.insert(path);
  }
  TRY(remove_paths(sandbox, gone));
  return sandbox.put(changed);
}

}  // namespace

Episode::Episode(Task task, BaseCopies backend, const EpisodeOptions& options, std::unique_ptr<Sandbox> sandbox)
    : task_(std::move(task)), backend_(backend), options_(options), sandbox_(std::move(sandbox)) {}

Result<std::unique_ptr<Episode>> Episode::open(Task task, SandboxBackend& backend, const EpisodeOptions& options) {
  TRY(check_needs(task, installs_python(options)));
  task.network = TRY(task.network.with(options.network));
  if (task.base) task.base->tree = TRY(prepare_base(*task.base));
  BaseCopies on(backend);
  auto sandbox = TRY(make_ready(on, task, options));
  task.servers.insert(task.servers.end(), options.servers.begin(), options.servers.end());
  TRY(start_servers(*sandbox, task.servers));
  return std::unique_ptr<Episode>(new Episode(std::move(task), on, options, std::move(sandbox)));
}

Opening Episode::opening(ToolListing listing) const {
  return envs::opening(task_, tools_of(options_), sandbox_ ? foreign_tools_of(*sandbox_) : std::vector<ForeignTool>(),
                       listing, options_.system, options_.packages ? options_.packages->told() : "");
}

Status Episode::put(const Files& files) {
  if (!sandbox_) return Status::unavailable("the episode has been scored; its sandbox is gone");
  return files.empty() ? Status() : sandbox_->put(files);
}

Result<ToolOutcome> Episode::call(std::string_view name, const Json& arguments) {
  if (!sandbox_) return fail(Status::unavailable("the episode has been scored; its sandbox is gone"));
  ++tool_calls_;
  auto outcome = TRY(sandbox_->call(name, arguments));
  changed_ = changed_ || outcome.changed_files;
  return outcome;
}

Result<std::vector<ToolOutcome>> Episode::turn(std::span<const ParsedCall> calls) {
  if (!sandbox_) return fail(Status::unavailable("the episode has been scored; its sandbox is gone"));
  if (options_.freeze_between_turns) TRY(thaw(*sandbox_));
  auto outcomes = TRY(run_turn(*sandbox_, calls));
  if (options_.freeze_between_turns) TRY(freeze(*sandbox_));
  for (const auto& outcome : outcomes) changed_ = changed_ || outcome.changed_files;
  tool_calls_ += static_cast<int>(outcomes.size());
  unread_calls_ += static_cast<int>(
      std::count_if(calls.begin(), calls.end(), [](const ParsedCall& call) { return !call.error.empty(); }));
  return outcomes;
}

Result<std::unique_ptr<Episode>> Episode::branch(const std::optional<SandboxHolder>& holder) {
  if (!sandbox_) return fail(Status::unavailable("the episode has been scored; its sandbox is gone"));
  EpisodeOptions options = options_;
  if (holder) {
    options.holder = *holder;
    options.holder.run = options_.holder.run;
  }
  if (options_.freeze_between_turns) TRY(thaw(*sandbox_));
  const auto sealed = seal(*sandbox_);
  if (!sealed && sealed.error().code() != Code::kUnfit) return fail(sealed.error());
  const auto snapshot = sealed ? *sealed : TRY(snapshot_of(*sandbox_));
  if (sealed) {
    sandbox_ = TRY(begin_again(backend_, spec_of(task_, options_), snapshot));
    TRY(start_servers(*sandbox_, task_.servers));
  }
  if (options_.freeze_between_turns) TRY(freeze(*sandbox_));
  auto sandbox = TRY(begin_again(backend_, spec_of(task_, options), snapshot));
  TRY(start_servers(*sandbox, task_.servers));
  std::unique_ptr<Episode> branch(new Episode(task_, backend_, options, std::move(sandbox)));
  branch->changed_ = changed_;
  branch->tool_calls_ = tool_calls_;
  branch->unread_calls_ = unread_calls_;
  branch->step_ = step_;
  branch->grades_ = grades_;
  branch->set_up_failed_ = set_up_failed_;
  branch->linted_ = linted_;
  return branch;
}

// Not in the sandbox of the episode: collecting files ends what runs there.
Result<Collected> begun_with(const Task& task, SandboxBackend& backend, EpisodeOptions options) {
  const TaskStep none, &first = task.steps.empty() ? none : task.steps.front();
  if (task.setup.empty() && first.setup.empty() && task.image.empty()) {
    Collected begun{.files = task.files};
    for (const auto& [path, content] : first.files) begun.files[path] = content;
    return begun;
  }
  options.holder.grading = true;
  BaseCopies on(backend);
  const auto sandbox = TRY(make_ready(on, task, options));
  return sandbox->collect();
}

bool installs_python(const EpisodeOptions& options) {
  const std::string any[] = {"pip"};
  return options.packages && !options.packages->install_python(any).empty();
}

Result<Grade> Episode::grade_now(std::string_view answer) {
  const auto collected = TRY(sandbox_->collect());
  if (options_.keep_left_behind) left_behind_ = collected;
  if (!collected.complete) {
    Grade failed;
    failed.terms["files"] = 0;
    failed.why = "files: more or larger ones were left behind than are collected";
    return failed;
  }
  const auto holder = spec_of(task_, options_).holder;
  InstalledBackend installed(backend_, options_.packages, options_.prepared, python_needs(task_));
  auto graded = TRY(grade(task_, collected.files, answer,
                          sandbox_runner(installed, options_.test_time_limit_s, holder, options_.most_test_seconds),
                          collected.programs, collected.removed, collected.details));
  if (options_.count_lints) graded.terms["lints"] = TRY(count_lints(collected.files));
  return graded;
}

Result<int> Episode::count_lints(const Files& left_behind) {
  auto holder = spec_of(task_, options_).holder;
  holder.grading = true;
  if (!linted_) linted_ = TRY(begun_with(task_, backend_, options_)).files;
  if (task_.base && task_.base->tree) {
    for (const auto& [path, content] : left_behind) {
      if (linted_->contains(path)) continue;
      if (auto kept = read_base_file(*task_.base->tree, path)) (*linted_)[path] = std::move(*kept);
    }
  }
  const int lints = TRY(count_new_lints(*linted_, left_behind, backend_, holder));
  linted_ = left_behind;
  return lints;
}

Result<std::optional<std::string>> Episode::next_step(std::string_view answer) {
  if (!sandbox_) return fail(Status::unavailable("the episode has been scored; its sandbox is gone"));
  if (step_ + 1 >= task_.steps.size() || step_ < grades_.size()) return std::nullopt;
  grades_.push_back(TRY(grade_now(answer)));
  const auto& least = task_.steps[step_].least_reward;
  if (least && grades_.back().reward < *least) return std::nullopt;
  const TaskStep& next = task_.steps[step_ + 1];
  const Status ready = prepare(*sandbox_, {next.files, next.programs, next.setup}, task_, options_);
  set_up_failed_ = ready.code() == Code::kInvalid;
  if (set_up_failed_) return std::nullopt;
  TRY(Status(ready));
  TRY(start_servers(*sandbox_, task_.servers));  // collecting has ended them
  if (linted_) {
    for (const auto& [path, content] : next.files) (*linted_)[path] = content;
  }
  task_.begin_step(++step_);
  return task_.instruction;
}

Grade Episode::joined() const {
  Grade all;
  for (size_t i = 0; i < grades_.size(); ++i) {
    const auto& name = task_.steps[i].name;
    all.terms["step " + name] = grades_[i].reward;
    all.reward += grades_[i].reward / static_cast<double>(grades_.size());
    if (const auto lints = grades_[i].terms.find("lints"); lints != grades_[i].terms.end())
      all.terms["lints"] += lints->second;
    if (!grades_[i].why.empty()) all.why += (all.why.empty() ? "" : "\n") + ("step " + name + ": " + grades_[i].why);
  }
  if (task_.last_step_counts) all.reward = set_up_failed_ ? 0 : grades_.back().reward;
  if (set_up_failed_)
    all.why += (all.why.empty() ? "" : "\n") + ("step " + task_.steps[step_ + 1].name + ": its setup failed");
  return all;
}

Result<Grade> Episode::score(std::string_view final_answer) {
  auto grade = TRY(score_task(final_answer));
  grade.terms["unread_calls"] = unread_calls_;
  return grade;
}

Result<Grade> Episode::score_task(std::string_view final_answer) {
  if (!sandbox_) return fail(Status::unavailable("the episode has been scored; its sandbox is gone"));
  const bool is_done = step_ < grades_.size();  // the step that is on, and nothing came of the next one
  auto grade = is_done ? Grade() : TRY(grade_now(final_answer));
  sandbox_.reset();
  if (task_.steps.empty()) return grade;
  if (!is_done) grades_.push_back(std::move(grade));
  return joined();
}

Runner sandbox_runner(SandboxBackend& backend, double time_limit_s, SandboxHolder holder, double most_seconds) {
  holder.grading = true;
  return [&backend, time_limit_s, most_seconds, holder = std::move(holder)](
             const Place& place, std::span<const CheckCommand> commands) -> Result<std::vector<ToolOutcome>> {
    SandboxSpec spec;
    spec.holder = holder;
    spec.call_time_limit_s = kPreparationSeconds;
    spec.links = place.links;
    spec.image = image_of(place.image);
    spec.base = place.base;
    set_disk(spec, place.disk_mb);
    auto sandbox = TRY(BaseCopies(backend).create(spec));
    if (place.base) TRY(remove_paths(*sandbox, gone_from(*place.base, place)));
    TRY(place.image.empty() ? sandbox->put(place.files) : replace_files(*sandbox, place));
    TRY(make_executable(*sandbox, place.programs));
    TRY(add_details(*sandbox, place.details));
    std::vector<ToolOutcome> outcomes;
    double left = most_seconds;
    for (const auto& command : commands) {
      constexpr double kLeast = 5;  // what reads a verdict that is there is not out of time
      const double most = std::max(left, std::min(kLeast, most_seconds));
      spec.call_time_limit_s = std::min(command.seconds > 0 ? command.seconds : time_limit_s, most);
      sandbox->set_call_limits(spec);
      outcomes.push_back(as_printed(TRY(sandbox->call("run_terminal_cmd", {{"command", command.command}}))));
      left -= outcomes.back().seconds;
      if (!command.any_exit && outcomes.back().exit_code != command.exit_code) break;
    }
    return outcomes;
  };
}

}  // namespace tandem::envs
