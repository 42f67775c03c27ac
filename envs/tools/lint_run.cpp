#include "envs/tools/lint_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "envs/tools/functions.h"
#include "envs/tools/process.h"

namespace tandem::envs {
namespace {

std::string count_of(const std::vector<std::string>& files) {
  return files.size() == 1 ? "1 file" : std::to_string(files.size()) + " files";
}

}  // namespace

void LintRun::check(const std::set<std::string>& files, const std::vector<ProjectLinter>& of_project) {
  std::map<const LintLanguage*, std::vector<std::string>> by_language;
  for (const auto& file : files) {
    if (const auto* language = lint_language(context_.root / file)) {
      by_language[language].push_back(file);
    } else if (std::none_of(of_project.begin(), of_project.end(),
                            [&](const ProjectLinter& linter) { return linter.takes(file); })) {
      note(file + " was not checked: no linter is known for files of this type");
    }
  }
  for (const auto& [language, of_language] : by_language) check(*language, of_language);
  for (const auto& linter : of_project) {
    std::vector<std::string> taken;
    std::copy_if(files.begin(), files.end(), std::back_inserter(taken),
                 [&](const std::string& file) { return linter.takes(file); });
    if (taken.empty()) continue;
    const auto program = find_program(linter.program);
    if (program.empty()) {
      failed(count_of(taken) + " not checked by " + linter.name + ": there is no program " + linter.program + " here");
    } else {
      run(linter.as_linter(), program, taken);
    }
  }
}

void LintRun::check(const LintLanguage& language, const std::vector<std::string>& files) {
  std::vector<std::string> known;
  for (const auto& linter : language.linters) {
    if (const auto program = find_program(linter.program); !program.empty()) return run(linter, program, files);
    if (known.empty() || known.back() != linter.name) known.emplace_back(linter.name);
  }
  note(count_of(files) + " of " + std::string(language.name) + (files.size() == 1 ? " was" : " were") +
       " not checked: no linter for it is installed here (" + join(known, ", ") + ")");
}

void LintRun::run(const Linter& linter, const std::string& program, const std::vector<std::string>& files) {
  if (linter.takes_many) return run_on(linter, program, files);
  for (const auto& file : files) run_on(linter, program, {file});
}

void LintRun::run_on(const Linter& linter, const std::string& program, const std::vector<std::string>& files) {
  ProcessSpec spec;
  spec.argv = {program};
  spec.argv.insert(spec.argv.end(), linter.arguments.begin(), linter.arguments.end());
  for (const auto& file : files) spec.argv.push_back("./" + file);
  spec.directory = context_.root;
  spec.environment = clean_environment(context_);
  spec.time_limit_s = to_seconds(deadline_ - clock_.now());
  const auto name = std::string(linter.name);
  const auto result = spec.time_limit_s > 0 ? run_process(spec) : ProcessResult{.timed_out = true};
  if (!result) return failed(name + " could not be started: " + result.error().message());
  if (result->timed_out) {
    const auto seconds = fmt::format("{:.3g} s", spec.time_limit_s);
    return failed(count_of(files) + " could not be checked: " +
                  (spec.time_limit_s > 0 ? name + " took longer than " + seconds : "no time was left for " + name));
  }
  size_t found = 0;
  for (auto& lint : linter.read(result->output)) {
    if (!linter.takes_many) lint.path = files[0];
    if (lint.path.starts_with("./")) lint.path.erase(0, 2);
    if (lint.path.starts_with("/")) continue;  // of the system's own headers
    lint.code = lint.code.empty() ? name : name + " " + lint.code;
    lints_.push_back(std::move(lint));
    ++found;
  }
  if (result->exit_code != 0 && found == 0) {
    const auto said = trim(result->output);
    return failed(count_of(files) + " could not be checked: " + name +
                  " failed: " + std::string(said.substr(0, std::min(said.find('\n'), size_t{300}))));
  }
  linters_.insert(name);
  checked_.insert(files.begin(), files.end());
}

void LintRun::failed(const std::string& line) {
  complete_ = false;
  note(line);
}

}  // namespace tandem::envs
