// Files of a commit, read from a repository on this machine with git's own program.
//
// Nothing is checked out, no hook, filter or setting of the repository takes part, and no network is ever asked: what a
// partial clone lacks is missing.
#pragma once

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

}  // namespace tandem::envs
