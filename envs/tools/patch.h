// Patches as Codex writes them, read and applied to texts.
//
//   patch   = "*** Begin Patch" file+ "*** End Patch"
//   file    = "*** Add File: " path ("+" text)*
//           | "*** Delete File: " path
//           | "*** Update File: " path ["*** Move to: " path] hunk*
//   hunk    = ("@@" [" " anchor])* ((" " | "-" | "+") text)+ ["*** End of File"]
//
// A hunk has no line numbers: its place is where its lines that begin with a space or a minus are found, after the hunk
// before it and after its anchors. Values; nothing here opens a file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tandem::envs {

struct PatchLine {
  char sign = ' ';  // ' ' stays, '-' goes, '+' comes
  std::string text;
};

struct PatchHunk {
  size_t line = 0;                   // where it begins in the patch, counted from 1
  std::vector<std::string> anchors;  // lines of the file that come before, in this order
  std::vector<PatchLine> lines;
  bool at_end = false;  // its lines are the last of the file
};

struct FilePatch {
  enum class Kind : uint8_t { kAdd, kDelete, kUpdate };
  Kind kind = Kind::kAdd;
  size_t line = 0;  // of its heading in the patch
  std::string path;
  std::string new_path;  // of an update that moves the file, else empty
  std::string contents;  // of an added file
  std::vector<PatchHunk> hunks;
};

// kInvalid, with the line and what would be right, for everything that the grammar does not have. Blank lines between
// hunks and files are forgiven, and so is a blank line without its space in a hunk.
Result<std::vector<FilePatch>> parse_patch(std::string_view text);

struct PatchedText {
  std::string content;
  bool exact = true;  // false: some lines were found only once spaces or typographic quotes and dashes were left aside
};

// `content` with the hunks of an update applied; lines that stay are those of `content`. The end of the last line stays
// as it was. kInvalid names the hunk that was not found, and the nearest lines.
Result<PatchedText> apply_hunks(const FilePatch& patch, std::string_view content);

}  // namespace tandem::envs
