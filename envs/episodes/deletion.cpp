#include "envs/episodes/deletion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "envs/episodes/episode.h"
#include "envs/tasks/command_check.h"
#include "envs/tasks/folder_files.h"
#include "envs/tasks/test_report.h"
#include "envs/tasks/yaml_task.h"

namespace tandem::envs {
namespace {

constexpr double kMostTestSeconds = 40;  // of all tests of a repository
constexpr int kRuns = 3;                 // of tests that must pass each time
constexpr int kRunsWithout = 2;          // of tests that must fail each time
constexpr double kLeastSeconds = 10;
constexpr double kSlower = 4;  // that a machine in use may be than it was for the tests' first runs

struct Run {
  std::set<std::string> passed;
  std::string output;
  double seconds = 0;
};

Result<Run> run_tests(const Files& files, const std::set<std::string>& programs, const std::string& command,
                      SandboxBackend& backend) {
  const CheckCommand reporting = reported({.command = command, .seconds = kMostTestSeconds});
  const SystemClock clock;
  const Time start = clock.now();
  const auto runner = sandbox_runner(backend, kMostTestSeconds, {});
  const auto outcomes = TRY(runner({.files = files, .programs = programs}, {&reporting, 1}));
  Run run{.passed = {}, .output = outcomes.at(0).output, .seconds = to_seconds(clock.now() - start)};
  if (outcomes.at(0).exit_code != 0) return run;  // killed, or its time was up
  for (const auto& [name, end] : read_test_report(run.output)) {
    if (end == TestEnd::kPassed) run.passed.insert(name);
  }
  return run;
}

// A scalar of YAML, whatever is in it: JSON's texts are some.
std::string quoted(const std::string& text) { return dump_json(Json(text)); }

std::string indented(std::string_view text) {
  std::string result;
  for (const auto line : split(text, '\n')) {
    if (!trim(line).empty()) result.append("    ").append(line);
    result += '\n';
  }
  return result;
}

std::string instruction_of(const PythonFunction& function) {
  const auto said = function.docstring.empty()
                        ? std::string("It has no docstring; what it must do is said by those who call it.\n")
                        : "Its docstring says:\n\n" + indented(function.docstring);
  return fmt::format(
      "The function {} in {} has lost its body. Write it anew.\n\n{}\n{}\n"
      "The tests of the repository that need it must pass, and those that pass now still must.",
      function.name, function.path, indented(function.signature), said);
}

// A block of text where that can hold it, for people to read.
std::string block(const std::string& text) {
  const bool plain = std::none_of(text.begin(), text.end(),
                                  [](char c) { return (static_cast<unsigned char>(c) < 32 && c != '\n') || c == 127; });
  if (!plain) return quoted(text) + "\n";
  std::string result = "|\n";
  for (const auto line : split(text, '\n')) result.append(line.empty() ? "" : "  ").append(line).append("\n");
  return result;
}

std::string yaml_of(const TestedRepository& repository, const PythonFunction& function) {
  const auto original = quoted("repo.files/" + function.path);
  std::string text = "instruction: " + block(instruction_of(function));
  text += "needs: [python3]\nturns: 30\nfiles:\n  .: {from: repo.files}\n";
  text += fmt::format("  {}: {{from: {}}}\n", quoted(function.path),
                      quoted("without.files/" + task_name(function) + ".py"));
  text += "check:\n  files:\n";
  for (const auto& [path, content] : repository.files) {
    if (is_test_path(path)) text += fmt::format("    {}: {{from: {}}}\n", quoted(path), quoted("repo.files/" + path));
  }
  if (text.ends_with("  files:\n")) text.resize(text.size() - std::string_view("  files:\n").size());
  text += fmt::format("  commands:\n    - run: {}\n      seconds: {}\n  tests:\n", quoted(repository.command),
                      repository.seconds);
  for (const auto& name : repository.tests) text += "    - " + quoted(name) + "\n";
  return text + fmt::format("solution:\n  files:\n    {}: {{from: {}}}\n", quoted(function.path), original);
}

Status write_below(const fs::path& path, std::string_view content) {
  if (const auto there = read_file(path, kMostTaskBytes); there && *there == content) return {};
  TRY(make_directories(path.parent_path()));
  return write_file(path, content);
}

}  // namespace

Result<TestedRepository> test_repository(Files files, std::set<std::string> programs, const std::string& command,
                                         SandboxBackend& backend) {
  TestedRepository repository{
      .files = std::move(files), .programs = std::move(programs), .command = command, .tests = {}};
  std::set<std::string> passed;
  std::string output;
  double slowest = 0;
  for (int i = 0; i < kRuns; ++i) {
    auto run = TRY(run_tests(repository.files, repository.programs, command, backend));
    if (i == 0) passed = run.passed;
    std::erase_if(passed, [&](const auto& name) { return !run.passed.contains(name); });
    slowest = std::max(slowest, run.seconds);
    output = std::move(run.output);
    if (passed.empty()) break;
  }
  if (passed.empty()) {
    constexpr size_t kMost = 1000;
    return fail(Status::invalid(fmt::format("`{}` reports no test that passes each time; it printed\n{}", command,
                                            output.substr(output.size() - std::min(output.size(), kMost))))
                    .hint("tests must be reported by name: python3 -m unittest -v, or python3 -m pytest -rA"));
  }
  repository.tests.assign(passed.begin(), passed.end());
  repository.seconds = std::min(kMostTestSeconds, std::max(kLeastSeconds, std::ceil(kSlower * slowest)));
  return repository;
}

Result<std::vector<std::string>> tests_that_miss(const TestedRepository& repository, const PythonFunction& function,
                                                 SandboxBackend& backend) {
  Files files = repository.files;
  files.at(function.path) = without_body(files.at(function.path), function);
  std::vector<std::string> missing = repository.tests;
  for (int i = 0; i < kRunsWithout && !missing.empty(); ++i) {
    const auto run = TRY(run_tests(files, repository.programs, repository.command, backend));
    std::erase_if(missing, [&](const auto& name) { return run.passed.contains(name); });
  }
  return missing;
}

std::string task_name(const PythonFunction& function) {
  auto name = fs::path(function.path).replace_extension().generic_string();
  std::replace(name.begin(), name.end(), '/', '.');
  return name + "-" + function.name;
}

Status write_repository(const fs::path& folder, const TestedRepository& repository) {
  for (const auto& [path, content] : repository.files) {
    const auto target = folder / "repo.files" / path;
    TRY(write_below(target, content));
    if (!repository.programs.contains(path)) continue;
    std::error_code error;
    fs::permissions(target, fs::perms::owner_exec | fs::perms::group_exec, fs::perm_options::add, error);
    if (error) return Status::from_errno(target.string(), error.value());
  }
  return {};
}

Status write_task(const fs::path& folder, const TestedRepository& repository, const PythonFunction& function) {
  const auto name = task_name(function);
  TRY(write_below(folder / "without.files" / (name + ".py"),
                  without_body(repository.files.at(function.path), function)));
  // Read before it has its name, so that whatever has one is a task.
  const auto file = folder / (name + ".yaml"), draft = folder / ("." + name + ".draft");
  TRY(write_file(draft, yaml_of(repository, function)));
  Mistakes mistakes;
  (void)read_yaml_task(draft, mistakes);
  std::error_code error;
  if (!mistakes.empty()) {
    fs::remove(draft, error);
    return mistakes.status();
  }
  fs::rename(draft, file, error);
  return error ? Status::from_errno(file.string(), error.value()) : Status();
}

}  // namespace tandem::envs
