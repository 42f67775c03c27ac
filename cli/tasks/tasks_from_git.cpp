// `tandem tasks from-git`.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <thread>

#include "base/json_line.h"
#include "base/text.h"
#include "base/work_queue.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/progress_line.h"
#include "cli/tasks/decision_log.h"
#include "cli/tasks/tasks_commands.h"
#include "envs/backends/backends.h"
#include "envs/episodes/commit_task.h"
#include "envs/tasks/git_tree.h"
#include "envs/tasks/mistakes.h"

namespace tandem::cli {
namespace {

using envs::CommitDecision;
using envs::CommitTaskOptions;

Json to_json(const CommitDecision& decision) {
  Json json = {{"commit", decision.commit},
               {"subject", decision.subject},
               {"task", decision.task.empty() ? Json() : Json(decision.task)},
               {"why", Json()},
               {"detail", ""},
               {"fail_to_pass", decision.fail_to_pass},
               {"pass_to_pass", decision.pass_to_pass},
               {"told", decision.told}};
  if (decision.refusal) {
    json["why"] = envs::to_string(decision.refusal->why);
    json["detail"] = decision.refusal->detail;
  }
  return json;
}

Result<CommitDecision> decision_from(const Json& json) {
  try {
    CommitDecision decision{.commit = json.at("commit").get<std::string>(),
                            .subject = json.at("subject").get<std::string>(),
                            .task = json.at("task").is_null() ? "" : json.at("task").get<std::string>(),
                            .refusal = std::nullopt,
                            .fail_to_pass = json.at("fail_to_pass").get<size_t>(),
                            .pass_to_pass = json.at("pass_to_pass").get<size_t>(),
                            .told = json.at("told").get<std::vector<std::string>>()};
    if (json.at("why").is_null()) return decision;
    const auto why = envs::no_task_from(json.at("why").get<std::string>());
    if (!why) return fail(Status::invalid("\"why\" is no reason that is known"));
    decision.refusal = envs::Refusal{*why, json.at("detail").get<std::string>()};
    return decision;
  } catch (const Json::exception& error) {
    return fail(Status::invalid(error.what()));
  }
}

void print(const CommitDecision& decision, bool json) {
  if (json)
    fmt::print("{}\n", dump_json_line(to_json(decision)));
  else if (decision.refusal)
    fmt::print("{}  no task     {}: {}\n", decision.commit.substr(0, 10), envs::to_string(decision.refusal->why),
               decision.refusal->detail);
  else
    fmt::print("{}  a task      {}: {} to pass, {} to keep{}\n", decision.commit.substr(0, 10), decision.task,
               decision.fail_to_pass, decision.pass_to_pass,
               decision.told.empty()
                   ? ""
                   : fmt::format(", {} name{} told", decision.told.size(), decision.told.size() == 1 ? "" : "s"));
  std::fflush(stdout);
}

// What the folder of a repository is called, without what git adds.
std::string name_of_repository(const fs::path& repository) {
  std::error_code error;
  auto path = fs::weakly_canonical(repository, error);
  if (path.filename() == ".git") path = path.parent_path();
  auto name = path.filename().string();
  if (name.ends_with(".git") && name.size() > 4) name.resize(name.size() - 4);
  return name;
}

std::string kind_of_project(const std::string& project) {
  std::string kind;
  for (const char c : project.substr(0, 64)) kind += envs::why_no_kind(std::string(1, c)).empty() ? c : '_';
  return kind.empty() ? "git" : kind;
}

// The decisions of one folder, counted.
class Commits {
 public:
  Commits(DecisionLog log, bool json) : log_(std::move(log)), json_(json) {}

  Status read() {
    int line = 1;
    for (const auto& json : log_.known()) {
      ++line;
      const auto decision = decision_from(json);
      if (!decision) return Status(decision.error()).at(log_.path(), line).hint("give another folder");
      count(*decision);
    }
    return {};
  }
  Status add(const CommitDecision& decision) {
    TRY(log_.add(to_json(decision)));
    count(decision);
    print(decision, json_);
    return {};
  }
  bool knows(const std::string& commit) const { return known_.contains(commit); }
  size_t size() const { return known_.size(); }
  size_t tasks() const { return tasks_; }
  void print_table() const {
    if (!refused_.empty()) fmt::print("\n{:<16} {:>7}\n", "no task", "commits");
    for (const auto& [why, count] : refused_)
      fmt::print("{:<16} {:>7}  {}\n", envs::to_string(why), count, envs::meaning_of(why));
    if (!refused_.empty()) fmt::print("\n");
  }

 private:
  void count(const CommitDecision& decision) {
    if (!known_.insert(decision.commit).second) return;
    if (decision.refusal)
      ++refused_[decision.refusal->why];
    else
      ++tasks_;
  }
  DecisionLog log_;
  bool json_;
  std::set<std::string> known_;
  std::map<envs::NoTask, size_t> refused_;
  size_t tasks_ = 0;
};

Json description_of(const CommitTaskOptions& task, const FromGitOptions& options) {
  std::error_code error;
  return {{"repository", fs::weakly_canonical(options.repository, error).string()},
          {"command", task.command},
          {"by_exit", task.by_exit},
          {"tests", options.tests},
          {"project", task.project},
          {"kind", task.kind},
          {"seconds", options.seconds},
          {"most_files", options.most_files},
          {"most_names", options.most_names}};
}

std::string left_of(double seconds, size_t done, size_t all) {
  if (done == 0 || done >= all) return "";
  return ", " + format_seconds(seconds / static_cast<double>(done) * static_cast<double>(all - done)) + " left";
}

}  // namespace

Result<int> tasks_from_git(const FromGitOptions& options) {
  CommitTaskOptions task{.repository = options.repository,
                         .folder = options.folder,
                         .project = {},
                         .kind = {},
                         .command = options.command};
  TRY(envs::git_folder_of(task.repository));
  task.project = options.project.empty() ? name_of_repository(task.repository) : options.project;
  if (const auto why = options.kind.empty() ? "" : envs::why_no_kind(options.kind); !why.empty())
    return fail(Status::invalid(fmt::format("--kind \"{}\" {}", options.kind, why)));
  task.kind = options.kind.empty() ? kind_of_project(task.project) : options.kind;
  task.by_exit = options.by_exit;
  task.seconds = options.seconds;
  task.rules.most_files = static_cast<size_t>(options.most_files);
  task.rules.most_names = static_cast<size_t>(options.most_names);
  if (!options.tests.empty()) {
    auto glob = envs::Glob::parse(options.tests);
    if (!glob) return fail(Status(glob.error()).at("--tests"));
    task.rules.tests = std::move(*glob);
  }
  const auto commits = TRY(envs::list_git_commits(task.repository, options.commits));
  if (commits.empty()) return fail(Status::not_found(options.commits + " names no commit of " + options.repository));
  const auto backend = TRY(envs::start_sandboxes());
  const auto interrupt = TRY(Interrupt::listen());
  envs::CommitTasks maker(task, *backend);
  TRY(maker.check_command());
  Commits decided(TRY(DecisionLog::open(task.folder, "commits.log", description_of(task, options),
                                        "is of another repository, another command or other rules")),
                  options.json);
  TRY(decided.read());
  std::vector<std::string> open;
  for (const auto& commit : commits) {
    if (!decided.knows(commit)) open.push_back(commit);
  }
  if (open.size() < commits.size())
    fmt::print(stderr, "{} of {} commits are in {} already\n", commits.size() - open.size(), commits.size(),
               options.folder);

  const size_t limit = options.limit > 0 ? static_cast<size_t>(options.limit) : commits.size();
  const size_t before = decided.tasks();
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const size_t threads = static_cast<size_t>(options.threads > 0 ? options.threads : cores);
  ProgressLine progress;
  Status failed;
  size_t done = 0, next = 0;
  {
    WorkQueue queue(static_cast<int>(threads), threads);
    const auto take_in = [&](const Result<CommitDecision>& decision) {
      ++done;
      progress.wipe();
      Status status = decision ? decided.add(*decision) : decision.error();
      if (!status.ok() && failed.ok()) failed = std::move(status);
    };
    // What runs may all come to tasks, and no more than the limit are wanted.
    const auto goes_on = [&] {
      return failed.ok() && !interrupt->requested() && next < open.size() && decided.tasks() + queue.pending() < limit;
    };
    while (goes_on() || queue.pending() > 0) {
      while (goes_on() && queue.pending() < threads) {
        queue.submit([&, commit = open[next++]]() -> WorkQueue::Completion {
          return [&, decision = maker.try_commit(commit)] { take_in(decision); };
        });
      }
      pollfd wait = {queue.wake_fd(), POLLIN, 0};
      ::poll(&wait, 1, 200);
      queue.run_completions();
      const auto tasks = decided.tasks() - before;
      const auto left = options.limit > 0 ? left_of(progress.seconds(), tasks, limit - std::min(limit, before))
                                          : left_of(progress.seconds(), done, open.size());
      progress.show(fmt::format("{} of {} commits, {} tasks{}", done, open.size(), decided.tasks(), left));
    }
  }
  progress.wipe();
  TRY(failed);
  if (!options.json) decided.print_table();
  fmt::print(options.json ? stderr : stdout, "{} task{} of {} commits in {}\n", decided.tasks(),
             decided.tasks() == 1 ? "" : "s", decided.size(), format_seconds(progress.seconds()));
  if (interrupt->requested()) {
    fmt::print(stderr, "interrupted; the same command goes on\n");
    return kInterrupted;
  }
  if (decided.tasks() > 0 && !options.json) fmt::print("Next: tandem tasks validate {}\n", options.folder);
  return decided.tasks() > 0 ? kDone : kFailed;
}

}  // namespace tandem::cli
