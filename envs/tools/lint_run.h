// Runs linters on files of a folder and collects their findings.
//
// Thread safety: none.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "envs/tools/linters.h"
#include "envs/tools/project_linters.h"
#include "envs/tools/tool.h"

namespace tandem::envs {

class LintRun {
 public:
  // The linters run in the root of `context`, with its environment, until `deadline`.
  LintRun(const ToolContext& context, Time deadline) : context_(context), deadline_(deadline) {}

  // Paths below the root. A file that no linter is known for is noted.
  void check(const std::set<std::string>& files, const std::vector<ProjectLinter>& of_project);

  void note(const std::string& line) { notes_ += line + "\n"; }

  // Where linters could not run or did not end, what they would have found is missing.
  bool complete() const { return complete_; }
  const std::vector<Lint>& lints() const { return lints_; }
  const std::string& notes() const { return notes_; }                // lines
  const std::set<std::string>& linters() const { return linters_; }  // that ran, by name
  size_t checked() const { return checked_.size(); }                 // files

 private:
  void check(const LintLanguage& language, const std::vector<std::string>& files);
  void run(const Linter& linter, const std::string& program, const std::vector<std::string>& files);
  void run_on(const Linter& linter, const std::string& program, const std::vector<std::string>& files);
  void failed(const std::string& line);

  const ToolContext& context_;
  const Time deadline_;
  const SystemClock clock_;
  std::vector<Lint> lints_;
  std::string notes_;
  std::set<std::string> linters_, checked_;
  bool complete_ = true;
};

}  // namespace tandem::envs
