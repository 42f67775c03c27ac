#include "envs/tasks/command_check.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "base/json.h"
#include "base/text.h"
#include "envs/tasks/left_details.h"
#include "envs/tasks/report_channel.h"
#include "envs/tasks/script_failures.h"
#include "envs/tasks/test_report.h"
#include "envs/tasks/verifier.h"
#include "envs/tools/process.h"

namespace tandem::envs {
namespace {

std::string_view without_end(std::string_view text) {
  const size_t last = text.find_last_not_of(" \t\r\n");
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

bool is_below(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

// pytest's part of files that hold settings of many programs: by it pytest can be told to load anything.
std::string pytest_settings(std::string_view path, std::string_view content) {
  const auto name = path.substr(path.rfind('/') + 1);
  if (name != "pyproject.toml" && name != "setup.cfg" && name != "tox.ini") return "";
  std::string settings;
  bool inside = false;
  for (const auto line : split(content, '\n')) {
    const auto text = trim(line);
    if (text.starts_with('[')) {
      inside = text.starts_with("[tool.pytest") || text.starts_with("[tool:pytest") || text.starts_with("[pytest]");
    }
    if (inside && !text.empty()) settings.append(text).append("\n");
    if (!inside && text.starts_with("tool.pytest")) settings.append(text).append("\n");
  }
  return settings;
}

std::optional<std::string> began_with(const Task& task, const std::string& path) {
  if (const auto found = task.files.find(path); found != task.files.end()) return found->second;
  if (!task.base || !task.base->tree) return std::nullopt;
  auto kept = read_base_file(*task.base->tree, path);
  return kept ? std::optional(std::move(*kept)) : std::nullopt;
}

// Such files with other settings of pytest than the task began with are as they were then.
void keep_pytest_settings(const Task& task, Files& files) {
  std::map<std::string, std::optional<std::string>> changed;
  for (const auto& [path, content] : files) {
    if (pytest_settings(path, "tool.pytest").empty()) continue;  // no such file
    auto before = began_with(task, path);
    const auto settings = before ? pytest_settings(path, *before) : "";
    if (pytest_settings(path, content) != settings) changed[path] = std::move(before);
  }
  for (auto& [path, before] : changed) {
    if (before)
      files[path] = std::move(*before);
    else
      files.erase(path);
  }
}

// What of the base lies where files of the check go and is in their way.
void clear_base(const BaseTree& base, const std::string& path, std::set<std::string>& removed) {
  const auto is = [&](const std::string& at, uint32_t type) {
    const auto mode = mode_in_base(base, at);
    return mode && (*mode & S_IFMT) == type;
  };
  if (is(path, S_IFDIR)) removed.insert(path);
  for (auto parent = fs::path(path).parent_path(); !parent.empty(); parent = parent.parent_path()) {
    if (is(parent.string(), S_IFREG) || is(parent.string(), S_IFLNK)) removed.insert(parent.string());
  }
}

// What was left behind at and around a file that stays: below its path, or a file where it has a folder.
void clear_around(Files& files, const std::string& path) {
  const auto below = path + "/";
  for (auto next = files.lower_bound(below); next != files.end() && next->first.starts_with(below);)
    next = files.erase(next);
  for (auto parent = fs::path(path).parent_path(); !parent.empty(); parent = parent.parent_path())
    files.erase(parent.string());
}

Place place_for(const CommandCheck& check, const Task& task, const Files& left_behind,
                const std::set<std::string>& programs, const std::set<std::string>& removed,
                const TreeDetails& details) {
  Place place{.files = left_behind, .programs = programs, .links = task.links, .image = task.image};
  place.disk_mb = task.disk_mb;
  place.details = details_for_tests(details, check, task.links);
  for (const auto& [path, target] : place.details.links) place.files.erase(path);
  if (task.base) {
    place.base = task.base->tree;
    place.removed = removed;
  }
  std::erase_if(place.files, [](const auto& file) { return steers_tests(file.first); });
  std::erase_if(place.removed, [&](const auto& path) {
    if (!steers_tests(path)) return false;
    clear_around(place.files, path);
    return true;
  });
  for (const auto& [path, content] : task.files) {
    if (!steers_tests(path)) continue;
    clear_around(place.files, path);
    place.files[path] = content;
  }
  keep_pytest_settings(task, place.files);
  for (const auto& folder : check.folders) {
    std::erase_if(place.files, [&](const auto& file) { return is_below(file.first, folder); });
    if (place.base) place.removed.insert(folder);
  }
  for (const auto& [path, content] : check.files) {
    const auto in_the_way = [&path = path](const std::string& other) {
      return is_below(other, path) || is_below(path, other);
    };
    std::erase_if(place.files, [&](const auto& file) { return in_the_way(file.first); });
    place.files[path] = content;
    place.programs.erase(path);
    if (place.base) clear_base(*place.base, path, place.removed);
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
  constexpr std::string_view kPackages[] = {"pytest", "_pytest", "pluggy",
                                            "unittest"};  // in place of the installed ones
  const auto name = path.substr(path.rfind('/') + 1);
  const auto folder = path.substr(0, path.size() - std::min(path.size(), name.size() + 1));
  if (std::find(std::begin(kPackages), std::end(kPackages), folder.substr(folder.rfind('/') + 1)) !=
          std::end(kPackages) &&
      name == "__init__.py")
    return true;
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) || name.ends_with(".pth") ||
         is_below(path, ".local");  // where Python looks for packages of the user
}

// "; its output ends:" and the end, or that there is none.
std::string end_in_words(std::string_view whose, std::string_view output) {
  const auto lines = last_lines(output);
  return trim(lines).empty() ? "; nothing was printed" : fmt::format("; {} output ends:\n{}", whose, lines);
}

Term judge(const CheckCommand& command, const ToolOutcome& outcome) {
  if (outcome.exit_code != command.exit_code) {
    const auto lines = last_lines(outcome.output);
    return {.why = fmt::format("`{}` ended with {} where {} was expected{}{}", command.command, outcome.exit_code,
                               command.exit_code, trim(lines).empty() ? "" : ":\n", lines)};
  }
  if (command.output && without_end(*command.output) != without_end(outcome.output)) {
    const auto lines = last_lines(outcome.output);
    return {.why = fmt::format("`{}` did not print what was expected, but{}{}", command.command,
                               trim(lines).empty() ? " nothing" : ":\n", lines)};
  }
  return {.value = 1};
}

CheckCommand reported(CheckCommand command) {
  // A program that is not there keeps its code, by which the lack is told from tests that fail.
  command.command =
      "(" + command.command +
      "\n); tandem_end=$?; if test $tandem_end -eq 127; then (exit 127); else test $tandem_end -lt 124; fi";
  command.exit_code = 0;
  return command;
}

namespace {

// Whether a program is one that the model was to make, and no lack of this machine: the task, its check or its solution
// name a file of that name outside of the system's folders.
bool is_of_task(const Task& task, const std::string& program) {
  const auto is_named = [&](std::string_view text, bool by_check = false) {
    const auto mark = "/" + program.substr(program.rfind('/') + 1);
    for (size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, at + 1)) {
      const size_t end = at + mark.size();
      if (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_' ||
                                text[end] == '-' || text[end] == '/'))
        continue;
      const auto before = text.substr(0, at);
      const auto word = before.substr(before.find_last_of(" \t\n\"'(<[") + 1);  // npos + 1 is the begin
      if (word.find("://") != std::string_view::npos) continue;
      // Where a check looks for what is installed, if nobody else speaks of it.
      if (by_check && (before.ends_with("/.local/bin") || before.ends_with("/.cargo/bin") || word.starts_with("/opt/")))
        continue;
      if (before.ends_with("/usr/bin") || before.ends_with("/usr/local/bin") || before.ends_with(" /bin") ||
          before.ends_with("!/bin"))
        continue;
      return true;
    }
    return false;
  };
  if (is_named(task.instruction)) return true;
  const auto lies_in = [&](const auto& link) {
    return link.second == "/workspace" && program.starts_with(link.first + "/");
  };
  if (std::any_of(task.links.begin(), task.links.end(), lies_in)) return true;
  for (const auto& command : task.expectation.commands->commands) {
    if (is_named(command.command, true)) return true;
  }
  for (const auto& turn : task.solution.turns) {
    for (const auto& call : turn) {
      if (is_named(dump_json(call.arguments))) return true;
    }
  }
  return std::any_of(task.solution.files.begin(), task.solution.files.end(),
                     [&](const auto& file) { return is_named("/" + file.first) || is_named(file.second); });
}

// Whether the instruction or the solution says the name of a program at all: a command of the check may find by PATH
// what the model was to make.
bool is_made(const Task& task, const std::string& program) {
  const auto is_said = [&](const std::string& text) { return text.find(program) != std::string::npos; };
  if (is_said(task.instruction)) return true;
  for (const auto& turn : task.solution.turns) {
    if (std::any_of(turn.begin(), turn.end(), [&](const auto& call) { return is_said(dump_json(call.arguments)); }))
      return true;
  }
  return std::any_of(task.solution.files.begin(), task.solution.files.end(),
                     [&](const auto& file) { return is_said(file.first); });
}

std::string_view last_line(std::string_view output) {
  output = trim(output);
  return output.substr(output.rfind('\n') + 1);
}

// The program that the check needs and this machine does not have; empty where there is none. Of a container the
// programs are those of its image.
std::string lacking_program(const Task& task, std::string_view output) {
  return missing_program(*task.expectation.commands, output, [&](const std::string& program) {
    std::error_code error;
    const bool is_there = program.starts_with('/') ? fs::exists(program, error) : !find_program(program).empty();
    // "Put a script greet into ~/.local/bin."
    const bool by_path = program.starts_with('/') && !program.starts_with("/usr/");
    return !(is_there && task.image.empty()) && !is_of_task(task, program) &&
           !(by_path && is_made(task, program.substr(program.rfind('/') + 1)));
  });
}

Status no_program(const CheckCommand& command, const std::string& program, std::string_view output) {
  return Status::invalid(fmt::format("no grade: `{}` needs {}, which this machine does not have{}", command.command,
                                     program, end_in_words("its", output)));
}

// What the script that was run last has left, which is never nothing.
Result<Term> term_of_rewards(const Task& task, const ToolOutcome& script, const ToolOutcome& printed) {
  const CommandCheck& check = *task.expectation.commands;
  const auto rewards = read_rewards(printed.output);
  if (!rewards) return fail(no_verdict(check, "gave no reward: " + rewards.error().message(), script.output));
  if (rewards->reward == 1) return Term{.value = 1, .metrics = rewards->metrics};
  // A script that goes on after a program that is not there leaves a reward of what it could not see.
  if (const auto missing = lacking_program(task, script.output); !missing.empty())
    return fail(no_verdict(check, fmt::format("left a reward of {}", rewards->reward), script.output));
  if (const auto failure = failure_of_script(check, script.output); !failure.empty())
    return fail(no_verdict(check, fmt::format("left a reward of {}, but {}", rewards->reward, failure), script.output));
  return Term{
      .value = rewards->reward,
      .why = fmt::format("the tests left a reward of {}{}", rewards->reward, end_in_words("their", script.output)),
      .metrics = rewards->metrics};
}

Result<Term> term_of_report(const Task& task, const ReportChannel::Reading& reading) {
  const CommandCheck& check = *task.expectation.commands;
  const auto& [report, output, why_none, unheard] = reading;
  if (!unheard.empty()) {
    const auto who = check.verifier.empty() ? "`" + check.commands.back().command + "`" : check.verifier;
    return fail(Status::invalid(fmt::format("no grade: {}: {}{}", who, unheard, end_in_words("the", output))));
  }
  const auto missing = lacking_program(task, output);
  const bool has_stopped = !missing.empty();
  // A Python without pytest says as little as one that the code under test has ended; it says why.
  if (!why_none.empty() && !has_stopped) return Term{.why = why_none + "\n" + last_lines(output)};
  auto why = why_not_passed(report, *check.tests);
  if (why.empty()) why = why_none;
  if (why.empty()) return Term{.value = 1, .share = 1};
  // Named tests that are not there have failed: what was left behind may keep all of them from being found.
  const bool is_silent = report.empty() && check.tests->empty();
  if (!check.verifier.empty() && (is_silent || has_stopped))
    return fail(no_verdict(check, "gave no verdict: " + why, output));
  if (has_stopped && report.empty() && lacking_program(task, last_line(output)) == missing)
    return fail(no_program(check.commands.back(), missing, output));
  return Term{.why = why + end_in_words("the", output), .share = share_that_passed(report, *check.tests)};
}

// The status of a command of the check that did otherwise than it must.
Status check_program(const Task& task, const CheckCommand& command, const ToolOutcome& outcome) {
  constexpr int kNoProgram = 127;
  if (is_out_of_time(outcome) && is_cut_short(command, outcome)) {
    return Status::invalid(fmt::format(
        "no grade: `{}` was still running after {:.3g} s, the longest that is waited for a grade here; the task gives "
        "it {} s{}",
        command.command, outcome.seconds, command.seconds, end_in_words("its", outcome.output)));
  }
  const auto missing = outcome.exit_code == kNoProgram ? lacking_program(task, outcome.output) : "";
  if (missing.empty() || is_made(task, missing)) return {};
  return no_program(command, missing, outcome.output);
}

}  // namespace

Result<Term> run_commands(const Task& task, const Files& left_behind, const std::set<std::string>& programs,
                          const std::set<std::string>& removed, const TreeDetails& details, const Runner& runner) {
  const CommandCheck& check = *task.expectation.commands;
  Place place = place_for(check, task, left_behind, programs, removed, details);
  auto commands = check.commands;
  const bool is_script = !check.verifier.empty();
  ReportChannel channel;
  if (check.tests && !commands.empty()) {
    if (!is_script) commands.back() = reported(std::move(commands.back()));
    channel.open_for(check, place, commands.back());
  }
  // By a command of its own: whatever the tests started has been ended by then, and cannot write it again.
  if (check.leaves_reward) commands.push_back({.command = print_rewards_command()});
  auto outcomes = TRY(runner(place, commands));
  const bool has_report = check.tests && !commands.empty() && outcomes.size() == commands.size();
  const auto reading = has_report ? channel.read(outcomes.back().output) : ReportChannel::Reading();
  if (has_report) outcomes.back().output = reading.printed;
  if (outcomes.empty()) return Term{.value = 1};
  for (size_t i = 0; i + (check.leaves_reward ? 1 : 0) < outcomes.size(); ++i) {
    if (is_script) {
      TRY(check_verifier(check, commands[i], outcomes[i]));
      if (commands[i].any_exit) continue;
    }
    CheckCommand command = commands[i];
    command.command = check.commands[i].command;
    auto term = judge(command, outcomes[i]);
    if (term.value == 1) continue;
    TRY(check_program(task, command, outcomes[i]));
    term.share = static_cast<double>(i) / static_cast<double>(commands.size());
    return term;
  }
  if (outcomes.size() < commands.size()) return Term{.why = "a command of the check was not run"};
  if (check.tests) return term_of_report(task, reading);
  if (check.leaves_reward) return term_of_rewards(task, outcomes[outcomes.size() - 2], outcomes.back());
  return Term{.value = 1, .share = 1};
}

}  // namespace tandem::envs
