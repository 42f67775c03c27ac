// Tasks made of a repository's commits: the tree before the commit is what the model begins with, its message is the
// instruction, its tests decide, its other changes are the solution.
//
// A task is a file in our own form (envs/tasks/yaml_task.h) beside `repository.git`, which holds the trees before the
// commits and nothing else. What is run of the repository is run in sandboxes.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "envs/episodes/episode.h"
#include "envs/tasks/commit_rules.h"

namespace tandem::envs {

struct CommitTaskOptions {
  fs::path repository;  // bare or a checkout
  fs::path folder;      // of the tasks
  std::string project;  // what instructions call the repository
  std::string kind;     // of the tasks
  std::string command;  // runs the tests; "{tests}" in it stands for the changed test modules
  // Whether the end of the command decides (0: passed), in place of a report by pytest or unittest.
  bool by_exit = false;
  double seconds = 40;  // that one run of it may take, kMostTestSeconds at most
  CommitRules rules = {};
};

// The result of a commit.
struct CommitDecision {
  std::string commit, subject;
  std::string task;  // its name; empty where there is none
  std::optional<Refusal> refusal;
  size_t fail_to_pass = 0, pass_to_pass = 0;  // tests; 0 where the end of the command decides
  std::vector<std::string> told;              // names and texts that the instruction says beside the message
};

// Thread safety: several commits may be tried at once.
class CommitTasks {
 public:
  CommitTasks(CommitTaskOptions options, SandboxBackend& backend) : options_(std::move(options)), backend_(backend) {}

  // kUnfit where the sandbox has no pytest and the command needs it.
  Status check_command() const;

  // Measures the commit by its tests, before and after, several times, and proves the task as `validate` does. A
  // commit that is no task is a decision; an error is one of this machine, and says nothing about the commit.
  Result<CommitDecision> try_commit(const std::string& id);

 private:
  struct Draft;
  std::optional<Refusal> read(const std::string& id, Draft& draft) const;
  Result<std::optional<Refusal>> measure(Draft& draft) const;
  Result<std::optional<Refusal>> write(const Draft& draft);
  std::string yaml_of(const Draft& draft) const;
  std::string command_of(const Draft& draft) const;

  const CommitTaskOptions options_;
  SandboxBackend& backend_;
  std::mutex copying_;  // one writer of repository.git
};

}  // namespace tandem::envs
