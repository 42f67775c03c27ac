// One attempt at one task: a sandbox with the task's files, the calls made in it, and the grade at the end.
//
// Ownership: the episode owns its sandbox and lets go of it in score() or when it is destroyed; the backend must
// outlive it. Thread safety: none; one episode is driven by one thread at a time. Errors: every error is one of the
// infrastructure (the sandbox is lost or late), and such an episode has no reward.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "envs/episodes/attempt.h"
#include "envs/episodes/base_copies.h"
#include "envs/episodes/opening.h"
#include "envs/episodes/prepared_snapshots.h"
#include "envs/episodes/turn.h"
#include "envs/sandbox/sandbox.h"
#include "envs/tasks/grade.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

struct EpisodeOptions {
  size_t output_limit = 2000;  // bytes of a call's output that the model is shown
  double call_time_limit_s = 10;
  double test_time_limit_s = 10;        // of commands of a check for which the task says none
  double most_test_seconds = 86400;     // of all commands of a check together, whatever the task says
  std::vector<std::string> tools = {};  // that there are, and that the prompt names; empty: prompted_tools()
  std::string system = std::string(kSystemMessage);  // where the model's template writes the tools
  AllowList network = {};                            // hosts that are open beside those of the task
  std::shared_ptr<PackageService> packages = {};     // registries that are open while the model works; may be null
  std::vector<McpServerSpec> servers = {};           // of tools, beside those of the task
  bool count_lints = false;               // problems that linters find because of the episode, as the term "lints"
  bool keep_left_behind = false;          // the files that are graded stay with the episode
  bool freeze_between_turns = false;      // what runs in the background stops while the model thinks
  bool branches = false;                  // it is going to be branched; then that takes no copy of the files
  PreparedSnapshots* prepared = nullptr;  // shared by episodes; null: each is made ready by itself
  SandboxHolder holder = {};              // of its sandboxes; the task's name is put in
};

class Episode final : public Attempt {
 public:
  // Also an error where this machine lacks what the task needs (kUnfit), its setup fails, a server of
  // tools does not begin, or there are more hosts or servers than there can be.
  static Result<std::unique_ptr<Episode>> open(Task task, SandboxBackend& backend, const EpisodeOptions& options = {});

  const Task& task() const override { return task_; }
  Opening opening(ToolListing listing) const override;

  // Puts files beside those of the task: what a solution brings along.
  Status put(const Files& files);

  // One call; a malformed or unknown one gives an outcome that says so.
  Result<ToolOutcome> call(std::string_view name, const Json& arguments);

  // All calls of one message, as run_turn runs them.
  Result<std::vector<ToolOutcome>> turn(std::span<const ParsedCall> calls);
  Result<std::vector<ToolOutcome>> turn(std::span<const ParsedCall> calls, std::string_view) override {
    return turn(calls);
  }

  // Whether the episode is at its end: files were changed in a task that ends on a change.
  bool over() const override { return task_.ends_on_change && changed_; }
  int tool_calls() const { return tool_calls_; }

  // What the model says without a call ends a step of a task in steps: grades it, and begins the next one, whose
  // instruction this is. Nothing where the episode is at its end: it was the last one, its reward is below what the
  // next one asks for, or that cannot be set up.
  Result<std::optional<std::string>> next_step(std::string_view answer) override;

  // A second episode of the task that goes on from here by itself: files, shell and counts are as they are now, what
  // runs in the background is not there, and servers of tools begin anew. kExhausted where the files are too many for a
  // snapshot and cannot be shared. `holder`: of its sandboxes; none: who holds this one's.
  Result<std::unique_ptr<Episode>> branch(const std::optional<SandboxHolder>& holder = {});

  // Collects what was left behind and grades it, hidden tests in a fresh sandbox; of a task in steps the one that is
  // on, joined with those before it. Terms that do not decide about the reward, for what it is weighed with:
  // unread_calls (a number), tests_passed (a share, where the check knows it), lints (a number, where they are
  // counted). Once; the sandbox is gone after it.
  Result<Grade> score(std::string_view final_answer) override;
  const Collected* left_behind() const override { return left_behind_ ? &*left_behind_ : nullptr; }

 private:
  Episode(Task task, BaseCopies backend, const EpisodeOptions& options, std::unique_ptr<Sandbox> sandbox);
  Result<Grade> grade_now(std::string_view answer);
  Grade joined() const;
  Result<int> count_lints(const Files& left_behind);
  Result<Grade> score_task(std::string_view final_answer);

  Task task_;
  BaseCopies backend_;
  EpisodeOptions options_;
  std::unique_ptr<Sandbox> sandbox_;
  bool changed_ = false;
  int tool_calls_ = 0, unread_calls_ = 0;
  size_t step_ = 0;             // the one that is on
  std::vector<Grade> grades_;   // of the steps that are done
  bool set_up_failed_ = false;  // of the step that would have followed
  std::optional<Collected> left_behind_;
  std::optional<Files> linted_;  // what the step that is on began with, where lints are counted; once a step is graded
};

// The files that an episode begins with, its setup done: of a task with a base what is other than there. In a sandbox
// of their own where only a sandbox can tell, and there setup runs once more. `task` is that of an open episode.
Result<Collected> begun_with(const Task& task, SandboxBackend& backend, EpisodeOptions options);

// Whether packages of Python that a task needs are installed for it.
bool installs_python(const EpisodeOptions& options);

// A Runner for grade() on sandboxes of this backend, which are `holder`'s. A command that says no time has
// `time_limit_s`; all together have no more than `most_seconds`.
Runner sandbox_runner(SandboxBackend& backend, double time_limit_s, SandboxHolder holder = {},
                      double most_seconds = 86400);

}  // namespace tandem::envs
