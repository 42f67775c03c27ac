// The difference of two texts, line by line, as `diff -u` and git write it.
//
// Pure functions of their arguments. Time and memory are bounded: where texts have little in common the middle of one
// is shown as replaced by the middle of the other, which is right, if not the shortest.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::envs {

// Lines [old_begin, old_end) become lines [new_begin, new_end); counted from 0.
struct LineEdit {
  size_t old_begin = 0, old_end = 0, new_begin = 0, new_end = 0;
  friend bool operator==(const LineEdit&, const LineEdit&) = default;
};

// In order, none next to another; empty where the texts are equal.
std::vector<LineEdit> line_edits(const std::vector<std::string_view>& before,
                                 const std::vector<std::string_view>& after);

// The lines of a text without their line ends; one that does not end in a line end says so in `ends_open`.
struct TextLines {
  std::vector<std::string_view> lines;
  bool ends_open = false;
};
TextLines lines_of(std::string_view text);

// The hunks of a unified diff with three lines around each change; empty where the texts are equal.
std::string unified_hunks(std::string_view before, std::string_view after);

}  // namespace tandem::envs
