// read_lints: what the linters that are installed say, in one form.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "envs/tools/functions.h"
#include "envs/tools/linters.h"
#include "envs/tools/paths.h"
#include "envs/tools/process.h"

namespace tandem::envs {
namespace {

constexpr size_t kMostFiles = 200;
constexpr size_t kMostLints = 200;
constexpr double kMostSeconds = 60;  // of all linters of one call together

class Report {
 public:
  explicit Report(const ToolContext& context) : context_(context) {
    deadline_ = clock_.now() + from_seconds(std::min(context.time_limit_s, kMostSeconds));
  }

  void check(const LintLanguage& language, const std::vector<std::string>& files) {
    std::vector<std::string> known;
    for (const auto& linter : language.linters) {
      if (const auto program = find_program(linter.program); !program.empty()) return run(linter, program, files);
      if (known.empty() || known.back() != linter.name) known.emplace_back(linter.name);
    }
    notes_ += count_of(files) + " of " + std::string(language.name) + (files.size() == 1 ? " was" : " were") +
              " not checked: no linter for it is installed here (" + join(known, ", ") + ")\n";
  }

  void note(const std::string& line) { notes_ += line + "\n"; }

  std::string text() {
    std::sort(lints_.begin(), lints_.end(), [](const Lint& a, const Lint& b) {
      return std::tie(a.path, a.line, a.column, a.message) < std::tie(b.path, b.line, b.column, b.message);
    });
    std::string text;
    for (size_t i = 0; i < std::min(lints_.size(), kMostLints); ++i) {
      const auto& lint = lints_[i];
      text += lint.path + ":" + std::to_string(lint.line) + ":" + std::to_string(lint.column) + ": " + lint.severity +
              ": " + lint.message + " (" + lint.code + ")\n";
    }
    if (lints_.size() > kMostLints) text += "... " + std::to_string(lints_.size() - kMostLints) + " more\n";
    text += notes_;
    if (checked_ > 0) {
      const std::vector<std::string> names(linters_.begin(), linters_.end());
      text += (lints_.empty() ? "No problems"
                              : std::to_string(lints_.size()) + (lints_.size() == 1 ? " problem" : " problems")) +
              std::string(" in ") + std::to_string(checked_) + (checked_ == 1 ? " file" : " files") + " (" +
              join(names, ", ") + ").\n";
    }
    return text;
  }

 private:
  static std::string count_of(const std::vector<std::string>& files) {
    return files.size() == 1 ? "1 file" : std::to_string(files.size()) + " files";
  }

  void run(const Linter& linter, const std::string& program, const std::vector<std::string>& files) {
    if (linter.takes_many) return run_on(linter, program, files);
    for (const auto& file : files) run_on(linter, program, {file});
  }

  void run_on(const Linter& linter, const std::string& program, const std::vector<std::string>& files) {
    ProcessSpec spec;
    spec.argv = {program};
    spec.argv.insert(spec.argv.end(), linter.arguments.begin(), linter.arguments.end());
    for (const auto& file : files) spec.argv.push_back("./" + file);
    spec.directory = context_.root;
    spec.environment = clean_environment(context_);
    spec.time_limit_s = to_seconds(deadline_ - clock_.now());
    const auto name = std::string(linter.name);
    const auto result = spec.time_limit_s > 0 ? run_process(spec) : ProcessResult{.timed_out = true};
    if (!result) return note(name + " could not be started: " + result.error().message());
    if (result->timed_out) return note(count_of(files) + " could not be checked: " + name + " took too long");
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
      return note(count_of(files) + " could not be checked: " + name +
                  " failed: " + std::string(said.substr(0, std::min(said.find('\n'), size_t{300}))));
    }
    linters_.insert(name);
    checked_ += files.size();
  }

  const ToolContext& context_;
  const SystemClock clock_;
  Time deadline_{};
  std::vector<Lint> lints_;
  std::string notes_;
  std::set<std::string> linters_;
  size_t checked_ = 0;
};

}  // namespace

ToolOutcome tool_read_lints(const ToolContext& context, const Json& arguments) {
  const bool named = arguments.contains("paths") && !arguments.at("paths").empty();
  const Json paths = named ? arguments.at("paths") : Json::array({"."});
  std::set<std::string> files;
  for (const auto& item : paths) {
    const auto name = item.get<std::string>();
    const auto path = resolve(context, name);
    if (!path) return ToolOutcome::refused(path.error().message());
    std::error_code error;
    if (fs::is_regular_file(*path, error)) {
      files.insert(shown(context, *path));
    } else if (fs::is_directory(*path, error)) {
      const auto below = files_not_ignored(context, *path);
      if (!below) return ToolOutcome::refused(below.error().message());
      for (const auto& file : *below) {
        if (files.size() > kMostFiles) break;
        if (lint_language(context.root / file)) files.insert(file);
      }
    } else {
      return ToolOutcome::refused(missing_file(context, name));
    }
  }
  if (files.empty()) return ToolOutcome::done("There are no files here that a linter is known for.");
  if (files.size() > kMostFiles) {
    return ToolOutcome::refused("there are more than " + std::to_string(kMostFiles) +
                                " files to check; give the paths of those that matter");
  }
  Report report(context);
  std::map<const LintLanguage*, std::vector<std::string>> by_language;
  for (const auto& file : files) {
    if (const auto* language = lint_language(context.root / file)) {
      by_language[language].push_back(file);
    } else {
      report.note(file + " was not checked: no linter is known for files of this type");
    }
  }
  for (const auto& [language, of_language] : by_language) report.check(*language, of_language);
  return ToolOutcome::done(report.text());
}

}  // namespace tandem::envs
