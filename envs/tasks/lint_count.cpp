#include "envs/tasks/lint_count.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "base/clock.h"
#include "base/text.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {
namespace {

constexpr size_t kMostFiles = 100;

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// "redefinition of unused 'os' from line 3" is the same problem wherever it has moved to.
std::string without_lines(std::string message) {
  constexpr std::string_view kLine = " line ";
  for (size_t at = message.find(kLine); at != std::string::npos; at = message.find(kLine, at + 1)) {
    const size_t from = at + kLine.size();
    const size_t end = std::min(message.find_first_not_of("0123456789", from), message.size());
    message.erase(from, end - from);
  }
  return message;
}

// PATH:LINE:COLUMN: SEVERITY: MESSAGE (CODE) without its place; a path may have colons of its own.
std::optional<std::string> problem_of(std::string_view line) {
  const auto end = line.find(": ");
  if (end == std::string_view::npos) return std::nullopt;
  const auto parts = split(line.substr(0, end), ':');
  if (parts.size() < 3 || !is_number(parts.back()) || !is_number(parts[parts.size() - 2])) return std::nullopt;
  const auto place = parts.back().size() + parts[parts.size() - 2].size() + 2;
  return std::string(line.substr(0, end - place)) + without_lines(std::string(line.substr(end)));
}

// What read_lints said.
struct LintReport {
  std::vector<std::string> problems;
  size_t checked = 0;  // files, by a linter at least
  bool whole = true;   // by all that are meant for them, and nothing was left out
};

LintReport read_report(std::string_view text) {
  LintReport report{.problems = problems_in(text)};
  for (const auto line : split(text, '\n')) {
    if (problem_of(line)) continue;
    const bool failed = line.find(" could not be ") != line.npos || line.find(" not checked by ") != line.npos;
    if (failed || (line.starts_with("... ") && line.ends_with(" more"))) report.whole = false;
    // "No problems in 2 files (pyflakes)."
    const auto in = line.rfind(" in "), files = line.rfind(" file");
    if (in == line.npos || files == line.npos || files < in + 4 || !line.ends_with(").")) continue;
    const auto number = line.substr(in + 4, files - in - 4);
    if (is_number(number) && number.size() < 7) report.checked = std::stoul(std::string(number));
  }
  return report;
}

std::vector<std::string> problems_of(const LintReport& report, const std::string& path) {
  std::vector<std::string> problems;
  std::copy_if(report.problems.begin(), report.problems.end(), std::back_inserter(problems),
               [&](const auto& problem) { return problem.starts_with(path + ": "); });
  return problems;
}

bool is_regular(std::string_view content) { return content != "(not a regular file)"; }

Result<std::unique_ptr<Sandbox>> with_tree(SandboxBackend& backend, const SandboxSpec& spec, const Collected& tree) {
  constexpr size_t kLongestCommand = 60'000;
  auto sandbox = TRY(backend.create(spec));
  std::string command;
  const auto remove = [&]() -> Status {
    const auto outcome =
        TRY(sandbox->call("run_terminal_cmd", {{"command", "rm -rf --" + std::exchange(command, "")}}));
    return outcome.ok && outcome.exit_code == 0 ? Status() : Status::unavailable(outcome.output);
  };
  for (const auto& path : tree.removed) {
    command += " " + shell_quoted("./" + path);
    if (command.size() > kLongestCommand) TRY(remove());
  }
  if (!command.empty()) TRY(remove());
  Files files;
  std::copy_if(tree.files.begin(), tree.files.end(), std::inserter(files, files.end()),
               [](const auto& file) { return is_regular(file.second); });
  TRY(sandbox->put(files));
  return sandbox;
}

// Runs read_lints on files of one tree, for a time.
class TreeLinter {
 public:
  TreeLinter(Sandbox& sandbox, const SandboxSpec& spec)
      : sandbox_(sandbox), spec_(spec), end_(clock_.now() + from_seconds(kMostSeconds)) {}

  // Those of one language at once, since a linter takes long to start; each by itself where it is not known then which
  // of them were looked at.
  Result<std::map<std::string, LintReport>> look(const std::vector<std::string>& paths) {
    std::map<std::string, std::vector<std::string>> groups;
    for (const auto& path : paths) groups[std::filesystem::path(path).extension().string()].push_back(path);
    std::map<std::string, LintReport> reports;
    for (const auto& [ending, group] : groups) {
      const auto all = TRY(run(group));
      if (all && all->whole && all->checked == group.size()) {
        for (const auto& path : group) reports[path] = {.problems = problems_of(*all, path), .checked = 1};
        continue;
      }
      if (all && all->whole && all->checked == 0) continue;
      for (const auto& path : group) {
        if (auto one = TRY(run({path}))) {
          one->problems = problems_of(*one, path);
          reports[path] = std::move(*one);
        }
      }
    }
    return reports;
  }
  bool was_in_time() const { return in_time_; }

 private:
  static constexpr double kMostSeconds = 60;

  // Nothing where the tool refused, or no time is left.
  Result<std::optional<LintReport>> run(const std::vector<std::string>& paths) {
    SandboxSpec limits = spec_;
    limits.call_time_limit_s = to_seconds(end_ - clock_.now());
    in_time_ = in_time_ && limits.call_time_limit_s > 0;
    if (!in_time_) return std::nullopt;
    sandbox_.set_call_limits(limits);
    const auto outcome = TRY(sandbox_.call("read_lints", {{"paths", paths}}));
    return outcome.ok ? std::optional(read_report(outcome.output)) : std::nullopt;
  }

  Sandbox& sandbox_;
  const SandboxSpec& spec_;
  const SystemClock clock_;
  const Time end_;
  bool in_time_ = true;
};

// By path; `whole` becomes false where time was up before all had their turn.
Result<std::map<std::string, LintReport>> lint_each(SandboxBackend& backend, const SandboxSpec& spec,
                                                    const Collected& tree, const std::vector<std::string>& paths,
                                                    bool& whole) {
  if (paths.empty()) return std::map<std::string, LintReport>();
  const auto sandbox = TRY(with_tree(backend, spec, tree));
  TreeLinter linter(*sandbox, spec);
  auto reports = TRY(linter.look(paths));
  whole = whole && linter.was_in_time();
  return reports;
}

Result<std::vector<std::string>> lint(Sandbox& sandbox, const std::vector<std::string>& paths) {
  if (paths.empty()) return std::vector<std::string>();
  const auto outcome = TRY(sandbox.call("read_lints", {{"paths", paths}}));
  return outcome.ok ? problems_in(outcome.output) : std::vector<std::string>();
}

}  // namespace

std::vector<std::string> problems_in(std::string_view report) {
  std::vector<std::string> problems;
  for (const auto line : split(report, '\n')) {
    if (auto problem = problem_of(line)) problems.push_back(std::move(*problem));
  }
  std::sort(problems.begin(), problems.end());
  return problems;
}

Result<int> count_new_lints(const Files& before, const Files& after, SandboxBackend& backend, SandboxHolder holder) {
  std::vector<std::string> old_paths, new_paths;
  for (const auto& [path, content] : after) {
    const auto was = before.find(path);
    if (was != before.end() && was->second == content) continue;
    if (new_paths.size() >= kMostFiles) break;
    new_paths.push_back(path);
    if (was != before.end()) old_paths.push_back(path);
  }
  if (new_paths.empty()) return 0;
  SandboxSpec spec;
  spec.holder = std::move(holder);
  const auto sandbox = TRY(backend.create(spec));
  TRY(sandbox->put(before));
  const auto found_before = TRY(lint(*sandbox, old_paths));
  TRY(sandbox->put(after));
  const auto found_after = TRY(lint(*sandbox, new_paths));
  std::vector<std::string> caused;
  std::set_difference(found_after.begin(), found_after.end(), found_before.begin(), found_before.end(),
                      std::back_inserter(caused));
  return static_cast<int>(caused.size());
}

Result<std::optional<NewLints>> new_lints(const Task& task, const Collected& begun, const Collected& left,
                                          const std::set<std::string>& changed, SandboxBackend& backend,
                                          SandboxHolder holder) {
  SandboxSpec spec;
  spec.holder = std::move(holder);
  spec.links = task.links;
  if (task.base) spec.base = task.base->tree;
  bool whole = left.complete;
  std::vector<std::string> paths(changed.begin(), changed.end());
  if (paths.size() > kMostFiles) {
    paths.resize(kMostFiles);
    whole = false;
  }
  const auto after = TRY(lint_each(backend, spec, left, paths, whole));
  std::vector<std::string> old_paths;
  for (const auto& [path, report] : after) {
    const bool was_there = begun.files.contains(path) ||
                           (spec.base && !begun.removed.contains(path) && mode_in_base(*spec.base, path).has_value());
    if (report.checked > 0 && was_there) old_paths.push_back(path);
  }
  const auto before = TRY(lint_each(backend, spec, begun, old_paths, whole));
  NewLints found{.at_least = false};
  for (const auto& [path, report] : after) {
    whole = whole && report.whole;
    if (report.checked == 0) continue;
    std::vector<std::string> known;
    if (std::binary_search(old_paths.begin(), old_paths.end(), path)) {
      const auto was = before.find(path);
      // What was not looked at in full may have had all of these problems.
      if (was == before.end() || was->second.checked == 0 || !was->second.whole) {
        whole = false;
        continue;
      }
      known = was->second.problems;
    }
    std::vector<std::string> caused;
    std::set_difference(report.problems.begin(), report.problems.end(), known.begin(), known.end(),
                        std::back_inserter(caused));
    found.count += caused.size();
    ++found.files;
  }
  found.at_least = !whole;
  return found.files > 0 ? std::optional(found) : std::nullopt;
}

}  // namespace tandem::envs
