// Which commits can become tasks, by what they change alone.
//
// Pure functions; nothing is read or run here. envs/episodes/commit_task.h measures the rest.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "envs/tasks/git_commits.h"
#include "envs/tools/glob.h"

namespace tandem::envs {

// Why a commit is no task.
enum class NoTask : uint8_t {
  kMerge,          // has several parents
  kFirst,          // has no parent
  kNoMessage,      // its message is empty, or no text
  kShortMessage,   // its message says too little to work from
  kTooLittleSaid,  // the tests use more new names than can be told beside the message
  kNoTests,        // changes no tests
  kNoSource,       // changes nothing but tests and documents
  kRename,         // renames files
  kBinary,         // changes files that are no text
  kModule,         // changes a submodule
  kLink,           // changes a symbolic link
  kMode,           // changes which files can be run, and not by adding them
  kPath,           // has a path that no workspace may have, or makes a folder of a file
  kTooLarge,       // changes too many files, or too much
  kTree,           // the tree before it cannot be a base
  kUnreadable,     // git cannot read it
  kTestsFail,      // no test passes after it
  kNothingFails,   // no test fails before it that passes after it
  kFlaky,          // those tests end differently from run to run
  kSlow,           // the tests take longer than a task's check may
  kProof,          // its solution does not pass as a task, doing nothing does, or a cheat
};
inline constexpr size_t kNoTaskCount = static_cast<size_t>(NoTask::kProof) + 1;

// The word of logs and JSON ("merge"), and the line of the summary.
std::string_view to_string(NoTask why);
std::string_view meaning_of(NoTask why);
std::optional<NoTask> no_task_from(std::string_view word);

struct Refusal {
  NoTask why;
  std::string detail;  // what was found, on one line
};

struct CommitRules {
  std::optional<Glob> tests = {};  // which files are tests; without it those that is_test_path names
  size_t most_files = 20;
  size_t most_bytes = size_t{256} << 10;  // of the changed files after the commit, together
  size_t least_words = 4;                 // of a message
  size_t most_names = 12;                 // that the instruction tells beside the message
};

// Whether a file decides how a commit is tested: tests, and files that steer their runner.
bool is_hidden(const CommitRules& rules, std::string_view path);

// Whether one of them is run by itself: a module of tests.
bool is_test_module(std::string_view path);

// A path as one line of plain characters, for messages.
std::string shown_path(std::string_view path);

// By parents, kinds of change, paths and their number; nothing where it may be a task. Contents are not looked at.
std::optional<Refusal> refuse_changes(const GitCommit& commit, const std::vector<GitChange>& changes,
                                      const CommitRules& rules);

}  // namespace tandem::envs
