// Patches as `git diff` and `diff -u` write them, read and applied to texts.
//
// A hunk fits where its numbers say, line for line, or not at all: these patches were made from the very files that
// they are applied to. Values; nothing here opens a file. Not read: binary patches, links, names in quotes.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

struct GitPatchLine {
  char sign = ' ';  // ' ' stays, '-' goes, '+' comes
  std::string text;
  bool ends_open = false;  // the text's last line, without a line end
};

struct GitHunk {
  size_t line = 0;       // of its heading in the patch, counted from 1
  size_t old_begin = 0;  // lines before it in the old text
  std::vector<GitPatchLine> lines;
};

struct GitFilePatch {
  size_t line = 0;       // where it begins in the patch, counted from 1
  std::string old_path;  // empty for a file that is new
  std::string new_path;  // empty for one that goes
  std::string mode;      // of a new file, or one whose mode changes: "100755"; else empty
  bool copies = false;   // the old file stays
  std::vector<GitHunk> hunks;
};

// kInvalid names the line and what is wrong there. Text around the patches of files is passed over.
Result<std::vector<GitFilePatch>> parse_git_patch(std::string_view text);

// `content` with the hunks of a file applied. kInvalid names the first line that is not as the patch has it.
Result<std::string> apply_git_hunks(const GitFilePatch& patch, std::string_view content);

// The same for a folder's files; on an error nothing is changed. What a patch writes and takes away are its paths.
struct PatchedPaths {
  std::set<std::string> written, removed;
};
Result<PatchedPaths> apply_git_patch(std::string_view text, Files& files, std::set<std::string>& programs);

}  // namespace tandem::envs
