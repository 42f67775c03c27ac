// A file as tools edit it: lines end with \n, no mark of byte order stands in front; written back, lines keep the ends
// that they had, and the mark is there again.
//
// A value; pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tandem::envs {

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

class EditableText {
 public:
  // kInvalid for UTF-16 and UTF-32, by what it is and how it becomes UTF-8; `name` is the file's.
  static Result<EditableText> of(std::string_view content, std::string_view name);

  const std::string& text() const { return text_; }

  // Converts a model's text for this file to the same form.
  std::string adapted(std::string_view given) const;

  // The file with `edited` in place of text(). New lines end as the lines that they stand in place of, or beside.
  std::string restored(std::string_view edited) const;

 private:
  std::string text_;
  bool has_mark_ = false;
  std::vector<bool> windows_;  // of each line end, whether it is \r\n; empty where none is
};

// Maps each line of `after` to its line in `before`, in order; kNewLine for a new one.
inline constexpr size_t kNewLine = static_cast<size_t>(-1);
std::vector<size_t> lines_that_stay(const std::vector<std::string_view>& before,
                                    const std::vector<std::string_view>& after);

// Why `content` is UTF-16 or UTF-32 and no tool edits it; empty where it is not.
std::string why_utf16(std::string_view content, std::string_view name);

// The first byte that is no UTF-8, as a line (from 1) and its value; the line is 0 where all of it is.
struct ForeignByte {
  size_t line = 0;
  unsigned char value = 0;
};
ForeignByte foreign_byte(std::string_view content);

}  // namespace tandem::envs
