#include "envs/tools/sketch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "base/text.h"
#include "envs/tools/functions.h"

namespace tandem::envs {
namespace {

using Lines = std::span<const std::string_view>;

constexpr size_t kLongestRun = 64;  // lines that are compared to find a place: files of one line over and over are slow

// Spaces at the end of a line are not what anybody means by it.
std::string_view without_spaces_at_end(std::string_view line) {
  const size_t last = line.find_last_not_of(" \t\r");
  return last == std::string_view::npos ? std::string_view() : line.substr(0, last + 1);
}

bool same(std::string_view a, std::string_view b) { return without_spaces_at_end(a) == without_spaces_at_end(b); }

std::string quoted(std::string_view line) { return "\"" + std::string(trim(line).substr(0, 80)) + "\""; }

struct Part {
  Lines lines;
  bool open_before = false, open_after = false;  // whether a gap stands there
  size_t number = 0;                             // from 1, for messages
};

// Blank lines beside a gap are how people set it off, and say nothing about the file.
Part trimmed(Part part) {
  const auto blank = [](std::string_view line) { return trim(line).empty(); };
  while (part.open_before && !part.lines.empty() && blank(part.lines.front())) part.lines = part.lines.subspan(1);
  while (part.open_after && !part.lines.empty() && blank(part.lines.back()))
    part.lines = part.lines.first(part.lines.size() - 1);
  return part;
}

std::vector<Part> parts_of(Lines sketch) {
  std::vector<Part> parts;
  bool gap_before = false;
  for (size_t begin = 0; begin <= sketch.size();) {
    size_t end = begin;
    while (end < sketch.size() && !stands_for_code(sketch[end])) ++end;
    auto part = trimmed({sketch.subspan(begin, end - begin), gap_before, end < sketch.size(), parts.size() + 1});
    if (!part.lines.empty()) parts.push_back(part);
    gap_before = true;
    begin = end + 1;
  }
  return parts;
}

// How many lines of the part, from its first on, stand in the file from `at` on.
size_t run_from(Lines file, size_t at, Lines part) {
  size_t run = 0;
  while (run < std::min(part.size(), kLongestRun) && at + run < file.size() && same(file[at + run], part[run])) ++run;
  return run;
}

// The same backwards from its last line, which stands at `at`, down to the line `floor` of the file.
size_t run_until(Lines file, size_t at, size_t floor, Lines part) {
  size_t run = 0;
  while (run < std::min(part.size(), kLongestRun) && at >= floor + run &&
         same(file[at - run], part[part.size() - 1 - run]))
    ++run;
  return run;
}

struct Places {
  size_t at = 0, run = 0, count = 0;  // the one with the longest run, and how many have it
  void add(size_t place, size_t length) {
    if (length > run) *this = {place, length, 0};
    if (length == run && length > 0) ++count;
  }
};

Status not_found(const Part& part, std::string_view line, const char* which, Lines file, size_t from) {
  const std::string text = fmt::format("part {} of code_edit {} with {}, and there is no such line{}", part.number,
                                       which, quoted(line), from == 0 ? "" : " behind the part before it");
  const auto near = nearest_lines(fmt::format("{}", fmt::join(file, "\n")), line);
  return Status::invalid(text + (near.empty() ? "; begin and end each part with lines that stay as they are"
                                              : ". The nearest lines are:\n" + near + "Copy such lines exactly"));
}

Status ambiguous(const Part& part, std::string_view line, const char* which, size_t count) {
  return Status::invalid(
      fmt::format("part {} of code_edit {} with {}, which fits {} places; give more of the lines that stay {} it",
                  part.number, which, quoted(line), count, std::string_view(which) == "begins" ? "behind" : "before"));
}

// Where a part lies in the file, at `from` or behind it: lines [first, end).
struct SketchPlace {
  size_t first = 0, end = 0;
};

Result<SketchPlace> place_of(const Part& part, Lines file, size_t from) {
  SketchPlace place{from, file.size()};
  if (part.open_before) {
    Places starts;
    for (size_t at = from; at < file.size(); ++at) starts.add(at, run_from(file, at, part.lines));
    if (starts.count == 0) return fail(not_found(part, part.lines.front(), "begins", file, from));
    if (starts.count > 1) return fail(ambiguous(part, part.lines.front(), "begins", starts.count));
    place.first = starts.at;
  }
  if (part.open_after) {
    Places ends;
    for (size_t at = place.first; at < file.size(); ++at) ends.add(at, run_until(file, at, place.first, part.lines));
    if (ends.count == 0) return fail(not_found(part, part.lines.back(), "ends", file, place.first));
    if (ends.count > 1) return fail(ambiguous(part, part.lines.back(), "ends", ends.count));
    place.end = ends.at + 1;
  }
  return place;
}

}  // namespace

bool stands_for_code(std::string_view line) {
  constexpr std::array<std::string_view, 10> kOpen = {"//", "#", "/*", "{/*", "<!--", "--", ";", "%", "\"\"\"", "'"};
  constexpr std::array<std::string_view, 4> kClose = {"*/}", "*/", "-->", "\"\"\""};
  constexpr std::array<std::string_view, 2> kEllipses = {"...", "\xE2\x80\xA6"};
  line = trim(line);
  const auto opening = std::find_if(kOpen.begin(), kOpen.end(), [&](auto mark) { return line.starts_with(mark); });
  if (opening == kOpen.end()) return false;
  line = trim(line.substr(opening->size()));
  for (const auto mark : kClose) {
    if (line.ends_with(mark)) line = trim(line.substr(0, line.size() - mark.size()));
  }
  for (const auto mark : kEllipses) {
    if (line.size() > 2 * mark.size() && line.starts_with(mark) && line.ends_with(mark))
      return !trim(line.substr(mark.size(), line.size() - 2 * mark.size())).empty();
  }
  return false;
}

bool has_gaps(std::string_view sketch) {
  const auto lines = split(sketch, '\n');
  return std::any_of(lines.begin(), lines.end(), stands_for_code);
}

Result<SketchedText> apply_sketch(std::string_view content, std::string_view sketch) {
  SketchedText text;
  if (!has_gaps(sketch)) {
    text.content = sketch;
    return text;
  }
  const auto file = split_lines(content), wanted = split_lines(sketch);
  const auto parts = parts_of(wanted);
  if (parts.empty()) return fail(Status::invalid("code_edit says that everything stays as it is, and nothing else"));
  std::vector<std::string_view> lines;
  size_t done = 0;
  for (const auto& part : parts) {
    const auto place = TRY(place_of(part, file, done));
    lines.insert(lines.end(), file.begin() + static_cast<long>(done), file.begin() + static_cast<long>(place.first));
    lines.insert(lines.end(), part.lines.begin(), part.lines.end());
    text.parts.push_back({place.first + 1, place.end, part.lines.size()});
    done = place.end;
  }
  lines.insert(lines.end(), file.begin() + static_cast<long>(done), file.end());
  for (const auto line : lines) text.content.append(line).append("\n");
  // What ends the new text decides whether its last line has an end.
  const std::string_view last = parts.back().open_after ? content : sketch;
  if (!last.ends_with('\n') && !text.content.empty()) text.content.pop_back();
  return text;
}

}  // namespace tandem::envs
