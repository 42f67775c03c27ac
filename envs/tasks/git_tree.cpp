#include "envs/tasks/git_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <vector>

#include "base/text.h"
#include "envs/tasks/folder_files.h"
#include "envs/tasks/mistakes.h"
#include "envs/tools/process.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {
namespace {

constexpr size_t kGitTreeMostListed = size_t{16} << 20;  // bytes of git's list of a tree
constexpr double kMostSeconds = 60;

struct Entry {
  std::string mode, object, path;
};

// "100644 blob 0123... \tPATH", each with a zero byte at its end.
std::vector<Entry> entries_of(std::string_view list) {
  std::vector<Entry> entries;
  for (const auto line : split(list, '\0')) {
    const size_t tab = line.find('\t');
    const auto words = split(line.substr(0, tab), ' ');
    if (tab == std::string_view::npos || words.size() < 3 || words[1] != "blob") continue;
    entries.push_back({std::string(words[0]), std::string(words[2]), std::string(line.substr(tab + 1))});
  }
  return entries;
}

// What `git cat-file --batch` says: "OBJECT blob SIZE\n", the bytes and a line end, for each.
Result<std::map<std::string, std::string>> objects_of(std::string_view text) {
  std::map<std::string, std::string> objects;
  while (!text.empty()) {
    const size_t line_end = std::min(text.find('\n'), text.size());
    const auto words = split(text.substr(0, line_end), ' ');
    text.remove_prefix(std::min(text.size(), line_end + 1));
    if (words.size() == 2) continue;  // "OBJECT missing"
    size_t size = 0;
    const bool good = words.size() == 3 &&
                      std::from_chars(words[2].data(), words[2].data() + words[2].size(), size).ec == std::errc();
    if (!good || size > text.size()) return fail(Status::corrupt("git's answer is cut short"));
    objects[std::string(words[0])] = text.substr(0, size);
    text.remove_prefix(std::min(text.size(), size + 1));
  }
  return objects;
}

}  // namespace

Result<std::map<std::string, std::string>> read_git_objects(const fs::path& repository,
                                                            const std::set<std::string>& objects, size_t most) {
  if (objects.empty()) return std::map<std::string, std::string>();
  const auto folder = TRY(git_folder_of(repository));
  std::string names;
  for (const auto& object : objects) names += " " + shell_quoted(object);
  return objects_of(TRY(run_git(folder, "printf '%s\\n'" + names + " | git cat-file --batch",
                                most + objects.size() * 100 + 1, kMostSeconds)));
}

Result<fs::path> git_folder_of(const fs::path& repository) {
  std::error_code error;
  if (fs::exists(repository / ".git", error)) return fs::absolute(repository / ".git");
  if (fs::exists(repository / "HEAD", error) && fs::is_directory(repository / "objects", error))
    return fs::absolute(repository);
  return fail(Status::not_found("there is no git repository at " + repository.string()));
}

Result<std::string> run_git(const fs::path& git_folder, const std::string& line, size_t most, double seconds) {
  if (find_program("git").empty()) return fail(Status::unfit("there is no program git on this machine"));
  const ProcessSpec spec{
      .argv = {"/bin/sh", "-c", line},
      .directory = "/",
      .environment = {"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "HOME=/nonexistent",
                      "GIT_DIR=" + git_folder.string(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
                      "GIT_NO_REPLACE_OBJECTS=1", "GIT_ALLOW_PROTOCOL=none", "GIT_TERMINAL_PROMPT=0",
                      // Settings of the repository by which git would run programs: gpg.program, hooks, a monitor.
                      "GIT_CONFIG_COUNT=4", "GIT_CONFIG_KEY_0=log.showSignature", "GIT_CONFIG_VALUE_0=false",
                      "GIT_CONFIG_KEY_1=core.hooksPath", "GIT_CONFIG_VALUE_1=/dev/null",
                      "GIT_CONFIG_KEY_2=core.fsmonitor", "GIT_CONFIG_VALUE_2=false",
                      "GIT_CONFIG_KEY_3=core.attributesFile", "GIT_CONFIG_VALUE_3=/dev/null"},
      .time_limit_s = seconds,
      .output_limit = most,
      .errors_apart = true};
  auto result = TRY(run_process(spec));
  if (result.timed_out) return fail(Status::deadline(fmt::format("git took longer than {} s", seconds)));
  if (result.truncated) return fail(Status::invalid("has more files than a task may have"));
  if (result.exit_code != 0) return fail(Status::not_found("git says: " + std::string(trim(result.errors))));
  return std::move(result.output);
}

Result<GitTree> read_git_tree(const fs::path& repository, const std::string& commit) {
  const auto folder = TRY(git_folder_of(repository));
  const auto list = "git ls-tree -r --full-tree ";
  const auto name = shell_quoted(commit + "^{commit}");
  const auto entries =
      entries_of(TRY(run_git(folder, fmt::format("{} -z {}", list, name), kGitTreeMostListed, kMostSeconds)));
  if (entries.size() > kMostTaskFiles)
    return fail(Status::invalid(fmt::format("has {} files; {} are the most", entries.size(), kMostTaskFiles)));
  // Each content may come once a path, with a line of its own.
  const size_t most = kMostTaskBytes + entries.size() * 100 + 1;
  const auto objects = TRY(objects_of(
      TRY(run_git(folder, fmt::format("{} --format='%(objectname)' {} | git cat-file --batch --buffer", list, name),
                  most, kMostSeconds))));
  GitTree tree;
  std::map<std::string, std::string> links;
  for (const auto& entry : entries) {
    const auto content = objects.find(entry.object);
    if (content == objects.end()) return fail(Status::not_found(entry.path + " is not in the repository"));
    if (const auto why = why_no_workspace_path(entry.path); !why.empty())
      return fail(Status::invalid(fmt::format("\"{}\" {}", entry.path, why)));
    if (entry.mode == "120000") {
      links[entry.path] = (fs::path(entry.path).parent_path() / content->second).lexically_normal().string();
      continue;
    }
    tree.files[entry.path] = content->second;
    if (entry.mode == "100755") tree.programs.insert(entry.path);
  }
  for (const auto& [path, target] : links) {
    const auto found = tree.files.find(target);
    if (found == tree.files.end() || links.contains(target))
      return fail(Status::invalid(fmt::format("the link {} leads to {}, which is no file of the tree", path, target)));
    tree.files[path] = std::string(found->second);
    if (tree.programs.contains(target)) tree.programs.insert(path);
  }
  TRY(check_size(tree.files));
  return tree;
}

Result<GitTree> read_git_files(const fs::path& repository, const std::string& commit,
                               const std::set<std::string>& paths) {
  const auto folder = TRY(git_folder_of(repository));
  GitTree tree;
  for (const auto& path : paths) {
    if (const auto why = why_no_workspace_path(path); !why.empty())
      return fail(Status::invalid(fmt::format("\"{}\" {}", path, why)));
    const auto name = shell_quoted(commit + "^{commit}");
    const auto entries = entries_of(TRY(run_git(
        folder, fmt::format("git --literal-pathspecs ls-tree --full-tree -z {} -- {}", name, shell_quoted(path)),
        kGitTreeMostListed, kMostSeconds)));
    if (entries.size() != 1 || entries[0].path != path || entries[0].mode == "120000") continue;
    tree.files[path] = TRY(run_git(folder, "git cat-file blob " + entries[0].object, kMostTaskBytes, kMostSeconds));
    if (entries[0].mode == "100755") tree.programs.insert(path);
    TRY(check_size(tree.files));
  }
  return tree;
}

}  // namespace tandem::envs
