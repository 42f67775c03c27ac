// A user's folder as files of a sandbox, and their changes there. The folder itself is only read.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "envs/changes/change.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

// A value: what was put into the sandbox.
struct FolderCopy {
  std::vector<TreeEntry> entries;
  LeavesOut leaves_out;  // what the user asked to be left out
  std::string note;      // what else was left out, and why; empty: nothing
};

// Paths that any of the globs names, or that lie in a folder that one names. kInvalid for globs that are none.
Result<LeavesOut> leaves_out_of(const std::vector<std::string>& globs);

// Puts what is in `folder` into a sandbox that has had no call. Folders named .git stay behind where they do not fit.
// kInvalid, naming what is largest, where even the rest does not.
Result<FolderCopy> copy_folder(const std::filesystem::path& folder, const LeavesOut& leaves_out, Sandbox& sandbox);

// Changes of the sandbox's files since they were put in.
Result<std::vector<Change>> changes_in(Sandbox& sandbox, const FolderCopy& copy);

}  // namespace tandem::envs
