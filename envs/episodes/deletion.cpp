#include "envs/episodes/deletion.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "envs/episodes/test_runs.h"
#include "envs/tasks/folder_files.h"
#include "envs/tasks/yaml_task.h"
#include "envs/tasks/yaml_text.h"

namespace tandem::envs {
namespace {

constexpr int kRuns = 3;         // of tests that must pass each time
constexpr int kRunsWithout = 2;  // of tests that must fail each time

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

std::string yaml_of(const TestedRepository& repository, const PythonFunction& function) {
  const auto original = yaml_quoted("repo.files/" + function.path);
  std::string text = "instruction: " + yaml_block(instruction_of(function));
  text += "needs: [python3]\nturns: 30\nfiles:\n  .: {from: repo.files}\n";
  text += fmt::format("  {}: {{from: {}}}\n", yaml_quoted(function.path),
                      yaml_quoted("without.files/" + task_name(function) + ".py"));
  text += "check:\n  files:\n";
  for (const auto& [path, content] : repository.files) {
    if (is_test_path(path))
      text += fmt::format("    {}: {{from: {}}}\n", yaml_quoted(path), yaml_quoted("repo.files/" + path));
  }
  if (text.ends_with("  files:\n")) text.resize(text.size() - std::string_view("  files:\n").size());
  text += fmt::format("  commands:\n    - run: {}\n      seconds: {}\n  tests:\n", yaml_quoted(repository.command),
                      repository.seconds);
  for (const auto& name : repository.tests) text += "    - " + yaml_quoted(name) + "\n";
  return text + fmt::format("solution:\n  files:\n    {}: {{from: {}}}\n", yaml_quoted(function.path), original);
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
    auto run = TRY(run_tests({.files = repository.files, .programs = repository.programs}, command, backend));
    if (i == 0) passed = run.passed;
    std::erase_if(passed, [&](const auto& name) { return !run.passed.contains(name); });
    slowest = std::max(slowest, run.seconds);
    output = std::move(run.output);
    if (passed.empty()) break;
  }
  if (passed.empty()) {
    return fail(Status::invalid(fmt::format("`{}` reports no test that passes each time; it printed\n{}", command,
                                            end_of_output(output)))
                    .hint("tests must be reported by name: python3 -m unittest -v, or python3 -m pytest -rA"));
  }
  repository.tests.assign(passed.begin(), passed.end());
  repository.seconds = seconds_for_tests(slowest);
  return repository;
}

Result<std::vector<std::string>> tests_that_miss(const TestedRepository& repository, const PythonFunction& function,
                                                 SandboxBackend& backend) {
  Files files = repository.files;
  files.at(function.path) = without_body(files.at(function.path), function);
  std::vector<std::string> missing = repository.tests;
  for (int i = 0; i < kRunsWithout && !missing.empty(); ++i) {
    const auto run = TRY(run_tests({.files = files, .programs = repository.programs}, repository.command, backend));
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
