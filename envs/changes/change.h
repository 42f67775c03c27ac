// Differences between two file trees, for review and for write-back to the user's folder.
//
// Values; pure functions of trees (envs/sandbox/file_tree.h). The trees come out of a sandbox: nothing in them is
// trusted, and nothing here touches a file.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "envs/sandbox/file_tree.h"

namespace tandem::envs {

constexpr mode_t kPermissions = 0777;  // the bits of a mode that count

inline bool is_folder(const std::optional<TreeEntry>& entry) { return entry && S_ISDIR(entry->mode); }

struct Change {
  std::string path;
  std::optional<TreeEntry> before, after;  // nothing: it was not there, it is not there any more
  // Why it stays in the sandbox; empty where it may be carried over. So do all that only a program of the user's own
  // should change (.git, whose hooks and settings git runs), links that lead out, and what is no file, folder or link.
  std::string refused;
  // Where it is known already that somebody else changed it meanwhile, and so it is left as it is: in what way.
  // `before` is what is there now.
  std::string conflict = {};
};

// Sorted by path. Times do not count, nor do bits of the mode beside read, write and execute. A file that could not be
// read on either side is no change, unless it is new.
std::vector<Change> changes_between(std::vector<TreeEntry> before, std::vector<TreeEntry> after);

// Back to how it was.
std::vector<Change> inverse(std::vector<Change> changes);

// "new", "deleted", "changed", "mode 644 -> 755", "file -> link".
std::string kind_of(const Change& change);

// As git writes it, printable whatever the files hold; what is not text is named with its sizes. Cut at `limit` bytes
// with a line that says how much is missing.
std::string diff_of(std::span<const Change> changes, size_t limit);

}  // namespace tandem::envs
