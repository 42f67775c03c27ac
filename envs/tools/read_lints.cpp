// read_lints: what the linters that are installed say, in one form.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "envs/tools/committed_files.h"
#include "envs/tools/functions.h"
#include "envs/tools/lint_run.h"
#include "envs/tools/paths.h"

namespace tandem::envs {
namespace {

constexpr size_t kReadLintsMostFiles = 200;
constexpr size_t kMostLints = 200;
constexpr double kReadLintsMostSeconds = 60;  // of all linters of one call together

// What a problem is, wherever in its file it has moved to.
auto identity(const Lint& lint) { return std::tuple(lint.path, lint.severity, lint.message, lint.code); }

// Those of `after` that are not in `before`; of several that are alike the last ones count as new.
std::vector<Lint> caused(const std::vector<Lint>& before, std::vector<Lint> after) {
  std::map<decltype(identity(Lint())), size_t> known;
  for (const auto& lint : before) ++known[identity(lint)];
  std::erase_if(after, [&](const Lint& lint) {
    auto& left = known[identity(lint)];
    return left > 0 && left-- > 0;
  });
  return after;
}

void sort(std::vector<Lint>& lints) {
  std::sort(lints.begin(), lints.end(), [](const Lint& a, const Lint& b) {
    return std::tie(a.path, a.line, a.column, a.message) < std::tie(b.path, b.line, b.column, b.message);
  });
}

std::string count_of(size_t number, const std::string& what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

// `older`: how many problems are not shown because they were there before; none where all are shown.
std::string report(const LintRun& run, const std::vector<Lint>& lints, std::optional<size_t> older) {
  std::string text;
  for (size_t i = 0; i < std::min(lints.size(), kMostLints); ++i) {
    const auto& lint = lints[i];
    text += lint.path + ":" + std::to_string(lint.line) + ":" + std::to_string(lint.column) + ": " + lint.severity +
            ": " + lint.message + " (" + lint.code + ")\n";
  }
  if (lints.size() > kMostLints) text += "... " + std::to_string(lints.size() - kMostLints) + " more\n";
  text += run.notes();
  if (run.checked() == 0) return text;
  const std::string what = older ? "new problem" : "problem";
  const std::vector<std::string> names(run.linters().begin(), run.linters().end());
  text += (lints.empty() ? "No " + what + "s" : count_of(lints.size(), what)) + " in " +
          count_of(run.checked(), "file") + " (" + join(names, ", ") + ").";
  if (older && *older > 0)
    text += " " + count_of(*older, "problem") + (*older == 1 ? " was" : " were") + " in the last commit already.";
  return text + "\n";
}

bool is_known(const ToolContext& context, const std::vector<ProjectLinter>& of_project, const std::string& file) {
  return lint_language(context.root / file) ||
         std::any_of(of_project.begin(), of_project.end(), [&](const auto& linter) { return linter.takes(file); });
}

// A file that was not in the last commit is new, with all that is found in it.
std::set<std::string> those_below(const fs::path& root, const std::set<std::string>& files) {
  std::set<std::string> found;
  std::error_code error;
  for (const auto& file : files) {
    if (fs::is_regular_file(root / file, error)) found.insert(file);
  }
  return found;
}

Result<std::set<std::string>> files_to_check(const ToolContext& context, const Json& arguments,
                                             const std::vector<ProjectLinter>& of_project) {
  const bool named = arguments.contains("paths") && !arguments.at("paths").empty();
  const Json paths = named ? arguments.at("paths") : Json::array({"."});
  std::set<std::string> files;
  for (const auto& item : paths) {
    const auto name = item.get<std::string>();
    const auto path = TRY(resolve(context, name));
    std::error_code error;
    if (fs::is_regular_file(path, error)) {
      files.insert(shown(context, path));
    } else if (fs::is_directory(path, error)) {
      for (const auto& file : TRY(files_not_ignored(context, path))) {
        if (files.size() > kReadLintsMostFiles) break;
        if (is_known(context, of_project, file)) files.insert(file);
      }
    } else {
      return fail(Status::invalid(missing_file(context, name)));
    }
  }
  if (files.size() <= kReadLintsMostFiles) return files;
  return fail(Status::invalid("there are more than " + std::to_string(kReadLintsMostFiles) +
                              " files to check; give the paths of those that matter"));
}

// What the last commit had of these problems leaves `lints`, and is counted. An error where it cannot be looked at.
Result<size_t> leave_out_older(std::vector<Lint>& lints, const ToolContext& context, const std::set<std::string>& files,
                               const std::vector<ProjectLinter>& of_project, Time deadline) {
  const auto committed = TRY(CommittedFiles::write_out(context, files, deadline));
  ToolContext of_commit = context;
  of_commit.root = committed.root();
  LintRun before(of_commit, deadline);
  before.check(those_below(committed.root(), files), of_project);
  if (!before.complete()) return fail(Status::unavailable("the last commit could not be checked in full"));
  auto old = before.lints();
  sort(old);
  const size_t all = lints.size();
  lints = caused(old, std::move(lints));
  return all - lints.size();
}

}  // namespace

ToolOutcome tool_read_lints(const ToolContext& context, const Json& arguments) {
  const auto of_project = project_linters(context.root);
  if (!of_project) return ToolOutcome::refused(of_project.error().message());
  const auto files = files_to_check(context, arguments, *of_project);
  if (!files) return ToolOutcome::refused(files.error().message());
  if (files->empty()) return ToolOutcome::done("There are no files here that a linter is known for.");
  const Time deadline = SystemClock().now() + from_seconds(std::min(context.time_limit_s, kReadLintsMostSeconds));
  LintRun run(context, deadline);
  run.check(*files, *of_project);
  auto lints = run.lints();
  sort(lints);
  std::optional<size_t> older;
  if (arguments.value("only_new", false)) {
    if (const auto left_out = leave_out_older(lints, context, *files, *of_project, deadline)) {
      older = *left_out;
    } else {
      run.note("Problems that are older are shown too: " + left_out.error().message() + ".");
    }
  }
  return ToolOutcome::done(report(run, lints, older));
}

}  // namespace tandem::envs
