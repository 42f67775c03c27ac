// A user's folder below a sandbox's own files, and the changes there. Nothing is copied; the folder itself is only
// read.
//
// The folder may change meanwhile. What nobody touches in the sandbox is never a change of its own. What the sandbox
// changed is held against the folder as it was at the beginning: a file that is another one there by now, by its size,
// times or number, is a conflict, whatever the model saw of it.
//
// A value: the folder as it was listed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "envs/changes/change.h"
#include "envs/sandbox/folder_list.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

inline constexpr size_t kLargestReplaced =
    kLargestChanged;  // bytes of all files that changes replace: undoing has them

struct FolderBase {
  std::filesystem::path folder;
  LeavesOut leaves_out;
  FolderList list;

  FolderBelow below() const;
  // Names of files and links, without those below .git; sorted.
  std::vector<std::string> names() const;
};

// Lists it. kUnfit where an overlay would not show all of it, since something is mounted there or it holds layers of
// containers; kExhausted beyond
// kMostListedFiles.
Result<FolderBase> folder_base(const std::filesystem::path& folder, const LeavesOut& leaves_out);

// Changes of a sandbox that begins on the folder (SandboxSpec::below). Sorted by path. Ends what runs there.
Result<std::vector<Change>> changes_on(Sandbox& sandbox, const FolderBase& base);

}  // namespace tandem::envs
