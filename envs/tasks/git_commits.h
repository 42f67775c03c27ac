// Commits of a git repository on this machine, and what each changes, read with git's plumbing.
//
// Nothing is checked out, no hook, filter or setting of the repository takes part, and no network is asked
// (envs/tasks/git_tree.h). Thread safety: functions of the disk; several may read one repository at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"

namespace tandem::envs {

struct GitCommit {
  std::string id;                    // the whole name
  std::vector<std::string> parents;  // whole names, the first one first
  std::string message;               // as it was written; any bytes
};

// A file that a commit changes against its first parent.
struct GitChange {
  std::string path;           // in the commit; for one that goes, in the parent
  std::string old_path;       // of a rename; else empty
  char status = 'M';          // as git names it: A added, D removed, M changed, R renamed, T of another type
  std::string before, after;  // modes: "100644", "100755", "120000" a link, "160000" a module, "000000" nothing
  std::string old_object, new_object;  // names of the contents; zeros for nothing
};

// Names of the commits of `range` (as git's rev-list takes it: "v1..v2", "main", "HEAD~20.."), newest first. kNotFound
// with git's words where it is none; kInvalid for one that begins with a dash, and for more than a million.
Result<std::vector<std::string>> list_git_commits(const fs::path& repository, const std::string& range);

// kNotFound where it is not there, kCorrupt where it is no commit.
Result<GitCommit> read_git_commit(const fs::path& repository, const std::string& id);

// Renames are those that git finds by itself. Empty for a commit without a parent. kInvalid for more than 100,000.
Result<std::vector<GitChange>> changes_of_commit(const fs::path& repository, const GitCommit& commit);

// Copies what belongs to the commit's own tree into a bare repository at `target`, which is made where there is none:
// no other commit, no reference and no setting comes along, so that it holds nothing of what came later. What is there
// already is not copied again. One writer of a target at a time.
Status copy_git_commit(const fs::path& repository, const std::string& commit, const fs::path& target);

}  // namespace tandem::envs
