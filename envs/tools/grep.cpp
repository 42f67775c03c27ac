// grep: ripgrep where it is installed, the system's grep otherwise; the same shape of output from both.
#include "base/file.h"
#include "base/text.h"
#include "envs/tools/functions.h"
#include "envs/tools/glob.h"
#include "envs/tools/ignore_files.h"
#include "envs/tools/paths.h"
#include "envs/tools/process.h"

namespace tandem::envs {
namespace {

// No file has more lines than that.
std::string number_of(const Json& arguments, const char* name) {
  constexpr uint64_t kMost = 1'000'000'000;
  return std::to_string(std::min(arguments.at(name).get<uint64_t>(), kMost));
}

bool flag(const Json& arguments, const char* name) {
  return arguments.contains(name) && arguments.at(name).get<bool>();
}

std::string mode_of(const Json& arguments) {
  return arguments.contains("output_mode") ? arguments.at("output_mode").get<std::string>() : "content";
}

// As glob_file_search has them: relative to the folder or at any depth, each as all that it may mean.
Result<std::vector<std::string>> globs_of(const Json& arguments) {
  if (!arguments.contains("glob")) return std::vector<std::string>();
  auto glob = arguments.at("glob").get<std::string>();
  const bool is_negative = glob.starts_with('!');
  if (is_negative) glob.erase(0, 1);
  constexpr std::string_view kShown = "/workspace/";
  const bool is_anchored = glob.starts_with(kShown);
  if (is_anchored) glob.erase(0, kShown.size() - 1);
  while (glob.starts_with("./")) glob.erase(0, 2);
  auto globs = TRY(glob_meanings(glob));
  for (auto& each : globs) {
    if (!is_anchored && each.find('/') != std::string::npos && !each.starts_with('/') && !each.starts_with("**/"))
      each.insert(0, "**/");
    each.insert(0, is_negative ? "!" : "");
  }
  return globs;
}

std::vector<std::string> ripgrep(const std::string& program, const Json& arguments,
                                 const std::vector<std::string>& globs) {
  std::vector<std::string> argv = {program,           "--no-config",        "--color=never", "--no-heading",
                                   "--with-filename", "--line-number",      "--sort=path",   "--hidden",
                                   "--glob=!.git",    "--max-columns=1000", "--no-messages"};
  const auto mode = mode_of(arguments);
  if (mode == "files_with_matches") argv.push_back("--files-with-matches");
  if (mode == "count") argv.push_back("--count");
  if (flag(arguments, "-i")) argv.push_back("--ignore-case");
  if (flag(arguments, "multiline")) argv.insert(argv.end(), {"--multiline", "--multiline-dotall"});
  for (const char* name : {"-A", "-B", "-C"}) {
    if (arguments.contains(name)) argv.insert(argv.end(), {name, number_of(arguments, name)});
  }
  if (arguments.contains("type")) argv.insert(argv.end(), {"--type", arguments.at("type").get<std::string>()});
  for (const auto& glob : globs) argv.push_back("--glob=" + glob);
  argv.push_back("--regexp=" + arguments.at("pattern").get<std::string>());
  argv.push_back("--");
  return argv;
}

std::vector<std::string> plain_grep(const std::string& program, const Json& arguments) {
  std::vector<std::string> argv = {program, "-rsEHnI", "--color=never", "--exclude-dir=.git", "--devices=skip"};
  const auto mode = mode_of(arguments);
  if (mode == "files_with_matches") argv.push_back("-l");
  if (mode == "count") argv.push_back("-c");
  if (flag(arguments, "-i")) argv.push_back("-i");
  for (const char* name : {"-A", "-B", "-C"}) {
    if (arguments.contains(name)) argv.insert(argv.end(), {name, number_of(arguments, name)});
  }
  if (arguments.contains("glob")) argv.push_back("--include=" + arguments.at("glob").get<std::string>());
  argv.insert(argv.end(), {"-e", arguments.at("pattern").get<std::string>(), "--"});
  return argv;
}

}  // namespace

ToolOutcome tool_grep(const ToolContext& context, const Json& arguments) {
  const auto pattern = arguments.at("pattern").get<std::string>();
  if (pattern.empty()) return ToolOutcome::refused("the pattern is empty; give a regular expression to look for");
  const auto where = arguments.contains("path") ? arguments.at("path").get<std::string>() : ".";
  const auto path = resolve(context, where);
  if (!path) return ToolOutcome::refused(path.error().message());
  std::error_code error;
  if (!fs::exists(*path, error)) return ToolOutcome::refused(missing_file(context, where));

  if (!fs::is_directory(*path, error) && !fs::is_regular_file(*path, error))
    return ToolOutcome::refused("\"" + where + "\" is neither a file nor a folder");

  const auto rg = find_program("rg"), grep = find_program("grep");
  if (rg.empty() && grep.empty()) return ToolOutcome::refused("neither ripgrep nor grep is installed here");
  if (rg.empty() && arguments.contains("glob") &&
      arguments.at("glob").get<std::string>().find('/') != std::string::npos)
    return ToolOutcome::refused(
        "a glob with a slash needs ripgrep, which is not installed here; give a path and a glob of names");
  const auto globs = globs_of(arguments);
  if (!globs) return ToolOutcome::refused(globs.error().message());
  if (!rg.empty() && fs::is_directory(*path, error)) {
    if (const auto fit = check_ignore_files(context, *path); !fit.ok()) return ToolOutcome::refused(fit.message());
  }
  ProcessSpec spec;
  spec.argv = !rg.empty() ? ripgrep(rg, arguments, *globs) : plain_grep(grep, arguments);
  // A whole path: below another one ripgrep 13 reads rules of other folders' ignore files as if they stood elsewhere.
  spec.argv.push_back(path->string());
  spec.directory = context.root;
  spec.environment = clean_environment(context);
  spec.time_limit_s = std::min(context.time_limit_s, 30.0);
  spec.output_limit = context.output_limit;
  const auto result = run_process(spec);
  if (!result) return ToolOutcome::refused(result.error().message());
  if (result->timed_out) {
    const auto fit = check_ignore_files(context, *path, kIgnoreFilesAfter);
    return ToolOutcome::refused(fit.ok() ? "the search took too long; give a path or a narrower pattern"
                                         : fit.message());
  }
  // What cannot be read is passed over with a code of its own; else that says that nothing was searched.
  const auto root = real_root(context).string() + "/";
  if (result->exit_code > 1 && !result->output.empty() && !result->output.starts_with(root))
    return ToolOutcome::refused("the search failed: " + std::string(trim(result->output)));

  const size_t limit = arguments.contains("head_limit") ? arguments.at("head_limit").get<size_t>() : SIZE_MAX;
  std::string text;
  size_t lines = 0, left_out = 0;
  for (auto line : split(result->output, '\n')) {
    if (line.empty()) continue;
    if (line.starts_with(root)) line.remove_prefix(root.size());
    if (rg.empty() && mode_of(arguments) == "count" && line.ends_with(":0")) continue;
    if (lines++ >= limit) {
      ++left_out;
      continue;
    }
    text.append(line).append("\n");
  }
  const std::string passed_over =
      result->exit_code > 1 ? "... files or rules of ignore files that cannot be read were passed over\n" : "";
  if (lines == 0)
    return ToolOutcome::done("No matches for \"" + pattern + "\"." + (passed_over.empty() ? "" : "\n") + passed_over);
  text += passed_over;
  if (left_out > 0) text += "... " + std::to_string(left_out) + " more lines\n";
  auto outcome = ToolOutcome::done(std::move(text));
  outcome.truncated = result->truncated;
  return outcome;
}

}  // namespace tandem::envs
