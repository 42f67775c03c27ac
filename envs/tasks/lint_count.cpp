#include "envs/tasks/lint_count.h"

#include <algorithm>
#include <iterator>

#include "base/text.h"

namespace tandem::envs {
namespace {

constexpr size_t kMostFiles = 100;

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
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
    // PATH:LINE:COLUMN: SEVERITY: MESSAGE (CODE); a path may have colons of its own.
    const auto end = line.find(": ");
    if (end == std::string_view::npos) continue;
    const auto parts = split(line.substr(0, end), ':');
    if (parts.size() < 3 || !is_number(parts.back()) || !is_number(parts[parts.size() - 2])) continue;
    const auto place = parts.back().size() + parts[parts.size() - 2].size() + 2;
    problems.push_back(std::string(line.substr(0, end - place)) + std::string(line.substr(end)));
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

}  // namespace tandem::envs
