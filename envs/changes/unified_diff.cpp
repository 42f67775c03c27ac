#include "envs/changes/unified_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace tandem::envs {
namespace {

constexpr size_t kContext = 3;        // lines around a change
constexpr int32_t kMostEdits = 1500;  // lines put in or taken out, up to which the shortest difference is looked for

using Lines = std::vector<std::string_view>;

// One line that is not in the other text: of `before` where `removed`, of `after` otherwise.
struct Step {
  bool removed = false;
  size_t old_line = 0, new_line = 0;
};

// E. Myers, "An O(ND) Difference Algorithm and Its Variations", 1986: furthest points of each diagonal for one edit
// more at a time, then the way back. Empty and false where more than kMostEdits are needed.
bool shortest(const Lines& a, const Lines& b, std::vector<Step>& steps) {
  const auto n = static_cast<int32_t>(a.size()), m = static_cast<int32_t>(b.size());
  std::vector<std::vector<int32_t>> furthest;  // by number of edits; diagonals -d..d
  // Where diagonal k of row d came from: one line more of `b` from the diagonal above it, or of `a` from the one below.
  const auto came_down = [&](int32_t d, int32_t k, int32_t& x) {
    const auto& last = furthest[static_cast<size_t>(d - 1)];
    const int32_t left = k - 1 >= -(d - 1) ? last[static_cast<size_t>(k - 1 + d - 1)] : -1;
    const int32_t above = k + 1 <= d - 1 ? last[static_cast<size_t>(k + 1 + d - 1)] : -1;
    const bool down = k == -d || (k != d && left < above);
    x = down ? above : left;
    return down;
  };
  std::vector<int32_t> row;
  bool found = false;
  for (int32_t d = 0; d <= std::min(n + m, kMostEdits) && !found; ++d) {
    row.assign(static_cast<size_t>(2 * d + 1), 0);
    for (int32_t k = -d; k <= d && !found; k += 2) {
      int32_t x = 0;
      if (d > 0 && !came_down(d, k, x)) ++x;
      int32_t y = x - k;
      while (x < n && y < m && a[static_cast<size_t>(x)] == b[static_cast<size_t>(y)]) ++x, ++y;
      row[static_cast<size_t>(k + d)] = x;
      found = x >= n && y >= m;
    }
    furthest.push_back(row);
  }
  if (!found) return false;
  int32_t x = n, y = m;
  for (auto d = static_cast<int32_t>(furthest.size()) - 1; d > 0; --d) {
    const int32_t k = x - y;
    const bool down = came_down(d, k, x);
    y = x - (down ? k + 1 : k - 1);
    steps.push_back({!down, static_cast<size_t>(x), static_cast<size_t>(y)});
  }
  std::reverse(steps.begin(), steps.end());
  return true;
}

void put_line(std::string& text, char mark, const TextLines& of, size_t line) {
  text += mark;
  text.append(of.lines[line]);
  text += '\n';
  if (of.ends_open && line + 1 == of.lines.size()) text += "\\ No newline at end of file\n";
}

std::string range_of(size_t begin, size_t count) {
  if (count == 1) return std::to_string(begin + 1);
  return fmt::format("{},{}", count == 0 ? begin : begin + 1, count);
}

}  // namespace

std::vector<LineEdit> line_edits(const Lines& before, const Lines& after) {
  size_t head = 0, tail = 0;
  const size_t shorter = std::min(before.size(), after.size());
  while (head < shorter && before[head] == after[head]) ++head;
  while (tail < shorter - head && before[before.size() - 1 - tail] == after[after.size() - 1 - tail]) ++tail;
  const Lines a(before.begin() + static_cast<long>(head), before.end() - static_cast<long>(tail));
  const Lines b(after.begin() + static_cast<long>(head), after.end() - static_cast<long>(tail));
  if (a.empty() && b.empty()) return {};
  std::vector<Step> steps;
  if (!shortest(a, b, steps)) return {{head, head + a.size(), head, head + b.size()}};
  std::vector<LineEdit> edits;
  for (const Step& step : steps) {
    const size_t old_line = head + step.old_line, new_line = head + step.new_line;
    if (edits.empty() || edits.back().old_end != old_line || edits.back().new_end != new_line) {
      edits.push_back({old_line, old_line, new_line, new_line});
    }
    ++(step.removed ? edits.back().old_end : edits.back().new_end);
  }
  return edits;
}

TextLines lines_of(std::string_view text) {
  TextLines found;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    found.lines.push_back(text.substr(0, end));
    found.ends_open = end == std::string_view::npos;
    text.remove_prefix(found.ends_open ? text.size() : end + 1);
  }
  return found;
}

std::string unified_hunks(std::string_view before, std::string_view after) {
  const TextLines a = lines_of(before), b = lines_of(after);
  // A last line with and one without its line end are two lines.
  Lines old_lines = a.lines, new_lines = b.lines;
  if (a.ends_open != b.ends_open) {
    const auto with_end = [](std::string_view text, bool open, Lines& lines) {
      if (!open && !lines.empty()) lines.back() = text.substr(text.size() - lines.back().size() - 1);
    };
    with_end(before, a.ends_open, old_lines);
    with_end(after, b.ends_open, new_lines);
  }
  const auto edits = line_edits(old_lines, new_lines);
  std::string text;
  for (size_t first = 0; first < edits.size();) {
    size_t last = first;
    while (last + 1 < edits.size() && edits[last + 1].old_begin - edits[last].old_end <= 2 * kContext) ++last;
    const size_t lead = std::min(edits[first].old_begin, kContext);
    const size_t trail = std::min(a.lines.size() - edits[last].old_end, kContext);
    const size_t old_begin = edits[first].old_begin - lead, new_begin = edits[first].new_begin - lead;
    text += fmt::format("@@ -{} +{} @@\n", range_of(old_begin, edits[last].old_end + trail - old_begin),
                        range_of(new_begin, edits[last].new_end + trail - new_begin));
    size_t line = old_begin;
    for (size_t i = first; i <= last; ++i) {
      for (; line < edits[i].old_begin; ++line) put_line(text, ' ', a, line);
      for (; line < edits[i].old_end; ++line) put_line(text, '-', a, line);
      for (size_t added = edits[i].new_begin; added < edits[i].new_end; ++added) put_line(text, '+', b, added);
    }
    for (size_t i = 0; i < trail; ++i) put_line(text, ' ', a, line++);
    first = last + 1;
  }
  return text;
}

}  // namespace tandem::envs
