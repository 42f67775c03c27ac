#include "envs/tasks/command_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/json.h"
#include "base/text.h"
#include "envs/tasks/test_report.h"

namespace tandem::envs {
namespace {

// The end of an output, which is where tests say what failed.
std::string last_lines(std::string_view output) {
  constexpr size_t kMost = 600;
  output = trim(output);
  if (output.size() <= kMost) return std::string(output);
  return "... " + std::string(output.substr(output.size() - kMost));
}

std::string_view without_end(std::string_view text) {
  const size_t last = text.find_last_not_of(" \t\r\n");
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

bool is_below(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

// Harbor's: a number, or an object of numbers of which `reward` counts.
std::optional<double> reward_in(std::string_view text) {
  double value = 0;
  const auto json = parse_json(trim(text));
  if (!json) return std::nullopt;
  if (json->is_number()) {
    value = json->get<double>();
  } else if (json->is_object() && json->contains("reward") && json->at("reward").is_number()) {
    value = json->at("reward").get<double>();
  } else {
    return std::nullopt;
  }
  if (!std::isfinite(value) || value < 0 || value > 1) return std::nullopt;
  return value;
}

Place place_for(const CommandCheck& check, const Task& task, const Files& left_behind,
                const std::set<std::string>& programs) {
  Place place{.files = left_behind, .programs = programs, .links = task.links, .image = task.image};
  std::erase_if(place.files, [](const auto& file) { return steers_tests(file.first); });
  for (const auto& [path, content] : task.files) {
    if (steers_tests(path)) place.files[path] = content;
  }
  for (const auto& folder : check.folders) {
    std::erase_if(place.files, [&](const auto& file) { return is_below(file.first, folder); });
  }
  for (const auto& [path, content] : check.files) {
    const auto in_the_way = [&path = path](const std::string& other) {
      return is_below(other, path) || is_below(path, other);
    };
    std::erase_if(place.files, [&](const auto& file) { return in_the_way(file.first); });
    place.files[path] = content;
    place.programs.erase(path);
  }
  std::erase_if(place.programs, [&](const auto& path) { return !place.files.contains(path); });
  place.programs.insert(check.programs.begin(), check.programs.end());
  return place;
}

}  // namespace

// Files by which code under test could decide how it is tested.
bool steers_tests(std::string_view path) {
  constexpr std::string_view kNames[] = {"conftest.py",   "pytest.ini",       ".pytest.ini", "sitecustomize.py",
                                         "pytest.py",     "usercustomize.py", "unittest.py", ".bashrc",
                                         ".bash_profile", ".profile",         ".npmrc",      ".pythonrc"};
  const auto name = path.substr(path.rfind('/') + 1);
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) || name.ends_with(".pth") ||
         is_below(path, ".local");  // where Python looks for packages of the user
}

Term judge(const CheckCommand& command, const ToolOutcome& outcome) {
  if (outcome.exit_code != command.exit_code) {
    return {.why = fmt::format("`{}` ended with {} where {} was expected:\n{}", command.command, outcome.exit_code,
                               command.exit_code, last_lines(outcome.output))};
  }
  if (command.output && without_end(*command.output) != without_end(outcome.output)) {
    return {.why = fmt::format("`{}` did not print what was expected, but:\n{}", command.command,
                               last_lines(outcome.output))};
  }
  return {.value = 1};
}

CheckCommand reported(CheckCommand command) {
  command.command = "(" + command.command + "\n); test $? -lt 124";
  command.exit_code = 0;
  return command;
}

Result<Term> run_commands(const Task& task, const Files& left_behind, const std::set<std::string>& programs,
                          const Runner& runner) {
  const CommandCheck& check = *task.expectation.commands;
  const Place place = place_for(check, task, left_behind, programs);
  auto commands = check.commands;
  if (check.tests && !commands.empty()) commands.back() = reported(std::move(commands.back()));
  if (check.leaves_reward) {
    // By a command of its own: whatever the tests started has been ended by then, and cannot write it again.
    commands.push_back({.command = "cat /logs/verifier/reward.json 2>/dev/null || cat /logs/verifier/reward.txt"});
  }
  const auto outcomes = TRY(runner(place, commands));
  if (outcomes.empty()) return Term{.value = 1};
  for (size_t i = 0; i + (check.leaves_reward ? 1 : 0) < outcomes.size(); ++i) {
    auto term = judge(commands[i], outcomes[i]);
    if (term.value == 1) continue;
    term.share = static_cast<double>(i) / static_cast<double>(commands.size());
    return term;
  }
  if (outcomes.size() < commands.size()) return Term{.why = "a command of the check was not run"};
  if (check.tests) {
    const auto& output = outcomes.back().output;
    const auto report = read_test_report(output);
    const auto why = why_not_passed(report, *check.tests);
    if (why.empty()) return Term{.value = 1, .share = 1};
    return Term{.why = why + "; the output ends:\n" + last_lines(output),
                .share = share_that_passed(report, *check.tests)};
  }
  if (!check.leaves_reward) return Term{.value = 1, .share = 1};
  const auto reward = reward_in(outcomes.back().output);
  if (!reward || outcomes.back().exit_code != 0) {
    return Term{.why = "the tests left no reward from 0 to 1 in /logs/verifier/reward.json or reward.txt"};
  }
  return Term{.value = *reward, .why = *reward == 1 ? "" : fmt::format("the tests left a reward of {}", *reward)};
}

}  // namespace tandem::envs
