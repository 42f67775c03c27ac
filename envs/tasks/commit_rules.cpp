#include "envs/tasks/commit_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "base/utf8.h"
#include "envs/tasks/command_check.h"
#include "envs/tasks/mistakes.h"
#include "envs/tasks/python_functions.h"

namespace tandem::envs {
namespace {

struct NoTaskWords {
  std::string_view word, meaning;
};

constexpr std::array<NoTaskWords, kNoTaskCount> kNoTaskWords = {{
    {"merge", "a merge: its changes are those of other commits"},
    {"first", "the first commit: nothing is before it"},
    {"no_message", "the message is empty or no text"},
    {"short_message", "the message says too little"},
    {"too_little_said", "the tests use more new names than the message says"},
    {"no_tests", "no test module is changed"},
    {"no_source", "nothing but tests and documents is changed"},
    {"rename", "files are renamed"},
    {"binary", "files are changed that are no text"},
    {"submodule", "a submodule is changed"},
    {"symlink", "a symbolic link is changed"},
    {"mode", "the mode of a file is changed"},
    {"path", "a path is changed that no workspace may have"},
    {"too_large", "too much is changed"},
    {"tree", "the tree before it cannot be a base"},
    {"unreadable", "git cannot read it"},
    {"tests_fail", "no test passes after it"},
    {"nothing_fails", "no test fails before it and passes after it"},
    {"flaky", "the tests that fail before it do not end the same each time"},
    {"slow", "the tests take longer than a check may"},
    {"proof", "it was not proved: the solution fails, or doing nothing or a cheat passes"},
}};

bool is_document(std::string_view path) {
  constexpr std::string_view kEnds[] = {".md", ".rst", ".txt", ".adoc"};
  const auto name = path.substr(path.rfind('/') + 1);
  return path.starts_with("docs/") || path.starts_with("doc/") || name == "AUTHORS" || name == "LICENSE" ||
         std::any_of(std::begin(kEnds), std::end(kEnds), [&](auto end) { return name.ends_with(end); });
}

std::string why_no_path(const std::string& path) {
  if (!is_valid_utf8(path)) return "is not UTF-8";
  if (path.find('\x7f') != std::string::npos) return "has a control character in it";
  for (const auto part : split(std::string_view(path), '/')) {
    std::string lower(part);
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    if (lower == ".git") return "belongs to git";
  }
  return why_no_workspace_path(path);
}

// A file below another one's path, where the other one goes or comes.
std::optional<std::string> folder_of_a_file(const std::vector<GitChange>& changes) {
  std::set<std::string> paths;
  for (const auto& change : changes) paths.insert(change.path);
  for (const auto& path : paths) {
    for (size_t at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1)) {
      if (paths.contains(path.substr(0, at))) return path.substr(0, at);
    }
  }
  return std::nullopt;
}

std::optional<Refusal> refuse_change(const GitChange& change) {
  const auto path = shown_path(change.path);
  const auto is = [&](std::string_view mode) { return change.before == mode || change.after == mode; };
  for (const auto& each : {change.path, change.old_path}) {
    if (each.empty()) continue;
    if (const auto why = why_no_path(each); !why.empty())
      return Refusal{NoTask::kPath, fmt::format("{} {}", shown_path(each), why)};
  }
  if (is("160000")) return Refusal{NoTask::kModule, path + " is a submodule"};
  if (is("120000")) return Refusal{NoTask::kLink, path + " is a symbolic link"};
  if (change.status == 'R' || change.status == 'C')
    return Refusal{NoTask::kRename, fmt::format("{} becomes {}", shown_path(change.old_path), path)};
  if (change.status != 'A' && change.status != 'D' && change.before != change.after)
    return Refusal{NoTask::kMode, fmt::format("{} goes from {} to {}", path, change.before, change.after)};
  return std::nullopt;
}

}  // namespace

std::string_view to_string(NoTask why) { return kNoTaskWords[static_cast<size_t>(why)].word; }
std::string_view meaning_of(NoTask why) { return kNoTaskWords[static_cast<size_t>(why)].meaning; }

std::optional<NoTask> no_task_from(std::string_view word) {
  for (size_t i = 0; i < kNoTaskCount; ++i) {
    if (kNoTaskWords[i].word == word) return static_cast<NoTask>(i);
  }
  return std::nullopt;
}

bool is_hidden(const CommitRules& rules, std::string_view path) {
  if (steers_tests(path)) return true;
  return rules.tests ? rules.tests->matches(path) : is_test_path(path);
}

bool is_test_module(std::string_view path) {
  const auto name = path.substr(path.rfind('/') + 1);
  return name.ends_with("_test.py") || (name.starts_with("test") && name.ends_with(".py"));
}

std::string shown_path(std::string_view path) {
  std::string shown = replace_invalid_utf8(path.substr(0, 120));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  }
  return shown;
}

std::optional<Refusal> refuse_changes(const GitCommit& commit, const std::vector<GitChange>& changes,
                                      const CommitRules& rules) {
  if (commit.parents.empty()) return Refusal{NoTask::kFirst, "it has no parent"};
  if (commit.parents.size() > 1)
    return Refusal{NoTask::kMerge, fmt::format("it has {} parents", commit.parents.size())};
  bool has_tests = false, has_source = false;
  for (const auto& change : changes) {
    const bool hidden = is_hidden(rules, change.path);
    const bool module = rules.tests ? hidden && !steers_tests(change.path) : hidden && is_test_module(change.path);
    has_tests = has_tests || (module && change.status != 'D');
    has_source = has_source || (!hidden && !is_document(change.path));
  }
  if (!has_tests) return Refusal{NoTask::kNoTests, "it changes no test module"};
  if (!has_source) return Refusal{NoTask::kNoSource, "it changes nothing but tests and documents"};
  for (const auto& change : changes) {
    if (auto refusal = refuse_change(change)) return refusal;
  }
  if (const auto path = folder_of_a_file(changes))
    return Refusal{NoTask::kPath, shown_path(*path) + " is a file on one side and a folder on the other"};
  if (changes.size() > rules.most_files)
    return Refusal{NoTask::kTooLarge,
                   fmt::format("it changes {} files; {} are the most", changes.size(), rules.most_files)};
  return std::nullopt;
}

}  // namespace tandem::envs
