#include "envs/tasks/git_commits.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "envs/tasks/git_tree.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {
namespace {

constexpr double kGitCommitSeconds = 60;
constexpr double kGitCopySeconds = 1800;
constexpr size_t kMostCommits = 1'000'000;
constexpr size_t kLargestCommit = size_t{1} << 20;    // bytes of a commit with its message
constexpr size_t kLargestChanges = size_t{32} << 20;  // bytes of git's list of changes
constexpr size_t kMostChanges = 100'000;

bool is_object_name(std::string_view word) {
  return (word.size() == 40 || word.size() == 64) &&
         std::all_of(word.begin(), word.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// The skeleton that git takes for a repository; made by hand, since `git init` copies templates of this machine.
Status make_bare(const fs::path& target, bool sha256) {
  TRY(make_directories(target / "objects" / "pack"));
  TRY(make_directories(target / "refs"));
  std::error_code error;
  if (sha256 && !fs::exists(target / "config", error))
    TRY(write_file(target / "config", "[core]\nrepositoryformatversion = 1\n[extensions]\nobjectformat = sha256\n"));
  if (!fs::exists(target / "HEAD", error)) TRY(write_file(target / "HEAD", "ref: refs/heads/none\n"));
  return {};
}

}  // namespace

Result<std::vector<std::string>> list_git_commits(const fs::path& repository, const std::string& range) {
  if (range.empty() || range.starts_with('-'))
    return fail(Status::invalid(fmt::format("\"{}\" is no range of commits", range)).hint("one is v1..v2, or HEAD"));
  const auto folder = TRY(git_folder_of(repository));
  auto listed = run_git(folder, fmt::format("git rev-list --topo-order --end-of-options {} --", shell_quoted(range)),
                        kMostCommits * 65, kGitCommitSeconds);
  if (!listed) {
    if (listed.error().code() == Code::kInvalid)
      return fail(Status::invalid(fmt::format("{} has more than {} commits; give fewer", range, kMostCommits)));
    return fail(listed.error());
  }
  std::vector<std::string> commits;
  for (const auto line : split(std::string_view(*listed), '\n')) {
    if (is_object_name(line)) commits.emplace_back(line);
  }
  return commits;
}

Result<GitCommit> read_git_commit(const fs::path& repository, const std::string& id) {
  const auto folder = TRY(git_folder_of(repository));
  const auto text = TRY(run_git(folder, "git cat-file commit " + shell_quoted(id), kLargestCommit, kGitCommitSeconds));
  GitCommit commit{.id = id, .parents = {}, .message = {}};
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.empty()) break;
    if (!line.starts_with("parent ")) continue;
    if (!is_object_name(line.substr(7))) return fail(Status::corrupt(id + " names a parent that is no commit"));
    commit.parents.emplace_back(line.substr(7));
  }
  commit.message = rest;
  return commit;
}

Result<std::vector<GitChange>> changes_of_commit(const fs::path& repository, const GitCommit& commit) {
  std::vector<GitChange> changes;
  if (commit.parents.empty()) return changes;
  const auto folder = TRY(git_folder_of(repository));
  const auto line =
      fmt::format("git diff-tree -r -z --raw --full-index --find-renames --no-ext-diff --no-textconv {} {}",
                  shell_quoted(commit.parents[0]), shell_quoted(commit.id));
  const auto text = TRY(run_git(folder, line, kLargestChanges, kGitCommitSeconds));
  // ":OLDMODE NEWMODE OLD NEW STATUS", the path, and of a rename the new path, each with a zero byte at its end.
  const auto parts = split(std::string_view(text), '\0');
  for (size_t i = 0; i + 1 < parts.size();) {
    const auto words = split(parts[i], ' ');
    if (words.size() != 5 || !words[0].starts_with(':') || words[4].empty())
      return fail(Status::corrupt(commit.id + ": git's list of changes cannot be read"));
    GitChange change{.path = std::string(parts[i + 1]),
                     .old_path = {},
                     .status = words[4][0],
                     .before = std::string(words[0].substr(1)),
                     .after = std::string(words[1]),
                     .old_object = std::string(words[2]),
                     .new_object = std::string(words[3])};
    i += 2;
    if (change.status == 'R' || change.status == 'C') {
      if (i >= parts.size()) return fail(Status::corrupt(commit.id + ": git's list of changes is cut short"));
      change.old_path = std::move(change.path);
      change.path = parts[i++];
    }
    changes.push_back(std::move(change));
    if (changes.size() > kMostChanges)
      return fail(Status::invalid(fmt::format("{} changes more than {} files", commit.id, kMostChanges)));
  }
  return changes;
}

Status copy_git_commit(const fs::path& repository, const std::string& commit, const fs::path& target) {
  if (!is_object_name(commit)) return Status::invalid("\"" + commit + "\" is no whole name of a commit");
  const auto from = TRY(git_folder_of(repository));
  TRY(make_bare(target, commit.size() == 64));
  // A commit whose parents are not there is one without parents.
  const auto shallow = target / "shallow";
  std::string ends;
  if (std::error_code error; fs::exists(shallow, error)) ends = TRY(read_file(shallow));
  if (ends.find(commit) == std::string::npos) TRY(write_file(shallow, ends + commit + "\n"));

  const auto list = target / "copy.list", pack = target / "copy.pack";
  const auto at_target = "GIT_DIR=" + shell_quoted(fs::absolute(target).string());
  const auto run = [&](const std::string& line) -> Status {
    TRY(run_git(from, line, 4096, kGitCopySeconds));
    return {};
  };
  const auto file = [](const fs::path& path) { return shell_quoted(fs::absolute(path).string()); };
  TRY(run(fmt::format("git rev-list --objects --no-object-names --no-walk {} > {}", commit, file(list))));
  const auto missing = TRY(run_git(from,
                                   fmt::format("{} git cat-file --batch-check='%(objectname)' < {} | "
                                               "sed -n 's/ missing$//p'",
                                               at_target, file(list)),
                                   size_t{256} << 20, kGitCopySeconds));
  std::error_code error;
  if (!missing.empty()) {
    TRY(write_file(list, missing));
    TRY(run(fmt::format("git pack-objects --stdout -q < {} > {}", file(list), file(pack))));
    TRY(run(fmt::format("{} git index-pack --stdin < {} > /dev/null", at_target, file(pack))));
  }
  fs::remove(list, error);
  fs::remove(pack, error);
  return {};
}

}  // namespace tandem::envs
