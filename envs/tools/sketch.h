// Sketches of edits: a file's new text in which "... existing code ..." stands for what stays.
//
// No model fills the gaps: each part between such lines begins and ends with lines of the file, by which its place is
// found, and stands for everything from the one to the other. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tandem::envs {

// Lines of a file that the sketch has given another text; counted from 1, `last` is `first - 1` where none went.
struct SketchedPart {
  size_t first = 0, last = 0;
  size_t new_lines = 0;
};

struct SketchedText {
  std::string content;
  std::vector<SketchedPart> parts;  // empty where the sketch was a whole file
};

// Whether a line stands for code that is there: a comment, in whatever language, of words between two ellipses.
bool stands_for_code(std::string_view line);
bool has_gaps(std::string_view sketch);

// `content` as the sketch has it; both with line ends \n. A sketch without gaps is the whole text. kInvalid, with a
// message for a model, where the place of a part is not found or not the only one.
Result<SketchedText> apply_sketch(std::string_view content, std::string_view sketch);

}  // namespace tandem::envs
