// Files of a commit, read from a repository on this machine with git's own program.
//
// Nothing is checked out, no hook, filter or setting of the repository takes part, and no network is ever asked: what a
// partial clone lacks is missing.
#pragma once

#include <map>
#include <set>
#include <string>

#include "base/file.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

struct GitTree {
  Files files;
  std::set<std::string> programs;
};

// `repository` is bare or a checkout; `commit` the digits of its name. Links to files of the tree are copies of them,
// modules are left out. kNotFound without such a repository or commit, kInvalid where there is more than a task may
// have or a link leads elsewhere, kUnfit without git.
Result<GitTree> read_git_tree(const fs::path& repository, const std::string& commit);

// The same of some of the files alone; those that are not there are left out, links too.
Result<GitTree> read_git_files(const fs::path& repository, const std::string& commit,
                               const std::set<std::string>& paths);

// Contents by their names in git, a thousand at most; those that are not there are left out. kInvalid where they have
// more than `most` bytes together.
Result<std::map<std::string, std::string>> read_git_objects(const fs::path& repository,
                                                            const std::set<std::string>& objects, size_t most);

// Where git keeps what it knows of `repository`, bare or a checkout. kNotFound where that is none.
Result<fs::path> git_folder_of(const fs::path& repository);

// Output of a git command there, limited in bytes and seconds, with the repository's own settings kept from whatever
// can run or fetch. kNotFound with git's words where it fails.
Result<std::string> run_git(const fs::path& git_folder, const std::string& line, size_t most, double seconds);

}  // namespace tandem::envs
