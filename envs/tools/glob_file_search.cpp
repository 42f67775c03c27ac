// glob_file_search: files by name, those changed last first.
#include <sys/stat.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "envs/tools/functions.h"
#include "envs/tools/glob.h"
#include "envs/tools/paths.h"

namespace tandem::envs {
namespace {

constexpr size_t kGlobFileSearchMostShown = 500;

// When a file was changed, in nanoseconds; files that are gone by now are the oldest.
int64_t changed_at(const fs::path& file) {
  struct stat info {};
  if (lstat(file.c_str(), &info) != 0) return 0;
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace

ToolOutcome tool_glob_file_search(const ToolContext& context, const Json& arguments) {
  const auto given = arguments.at("glob_pattern").get<std::string>();
  const auto where = arguments.contains("target_directory") ? arguments.at("target_directory").get<std::string>() : ".";
  const auto folder = resolve(context, where);
  if (!folder) return ToolOutcome::refused(folder.error().message());
  std::error_code error;
  if (!fs::is_directory(*folder, error)) {
    return ToolOutcome::refused("there is no folder \"" + where +
                                "\"; leave target_directory out to search everywhere");
  }

  std::string pattern = given;
  const auto prefix = context.shown_root + "/";
  const bool anchored = pattern.starts_with(prefix);
  if (anchored) pattern.erase(0, prefix.size());
  while (pattern.starts_with("./")) pattern.erase(0, 2);
  if (pattern.empty()) return ToolOutcome::refused("the pattern is empty; give one such as *.py");
  if (pattern.starts_with("/") || pattern.starts_with("../")) {
    return ToolOutcome::refused("the pattern \"" + given + "\" leads outside; patterns are relative to the folder");
  }
  if (!anchored && !pattern.starts_with("**/")) pattern = "**/" + pattern;
  const auto meanings = glob_meanings(pattern);
  if (!meanings) return ToolOutcome::refused(meanings.error().message());
  std::vector<Glob> globs;
  for (const auto& meaning : *meanings) {
    auto glob = Glob::parse(meaning);
    if (!glob) return ToolOutcome::refused(glob.error().message());
    globs.push_back(std::move(*glob));
  }

  const auto files = files_not_ignored(context, *folder);
  if (!files) return ToolOutcome::refused(files.error().message());
  const auto below = shown(context, *folder);
  const size_t cut = anchored || below == "." ? 0 : below.size() + 1;
  std::vector<std::tuple<int64_t, std::string_view>> found;
  for (const auto& file : *files) {
    const auto name = std::string_view(file).substr(cut);
    if (std::any_of(globs.begin(), globs.end(), [&](const Glob& glob) { return glob.matches(name); }))
      found.emplace_back(-changed_at(context.root / file), file);
  }
  if (found.empty()) return ToolOutcome::done("No files match \"" + pattern + "\".");
  std::sort(found.begin(), found.end());
  std::string text;
  for (size_t i = 0; i < std::min(found.size(), kGlobFileSearchMostShown); ++i)
    text.append(std::get<1>(found[i])).append("\n");
  if (found.size() > kGlobFileSearchMostShown)
    text += "... " + std::to_string(found.size() - kGlobFileSearchMostShown) + " more files\n";
  return ToolOutcome::done(std::move(text));
}

}  // namespace tandem::envs
