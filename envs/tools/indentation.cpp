#include "envs/tools/indentation.h"

#include <algorithm>
#include <map>

#include "base/text.h"

namespace tandem::envs {
namespace {

using LinesOf = std::span<const std::string_view>;

constexpr size_t kTab = 8;  // columns, where tabs and spaces are mixed

size_t width_of(std::string_view spaces) {
  size_t width = 0;
  for (const char c : spaces) width += c == '\t' ? kTab - width % kTab : 1;
  return width;
}

bool is_blank_line(std::string_view line) { return trim(line).empty(); }

// The least difference between depths that there are; 0 where there is only one.
size_t step_between(std::vector<size_t> widths) {
  std::sort(widths.begin(), widths.end());
  size_t step = 0;
  for (size_t i = 1; i < widths.size(); ++i) {
    const size_t difference = widths[i] - widths[i - 1];
    if (difference > 0 && (step == 0 || difference < step)) step = difference;
  }
  return step;
}

// By what one level of the file is deeper than the one before: its commonest difference between a line and the next.
std::string step_of_file(LinesOf file) {
  std::map<size_t, size_t> counts;
  size_t tabs = 0, spaces = 0, before = 0;
  for (const auto line : file) {
    if (is_blank_line(line)) continue;
    const auto indent = indentation(line);
    if (indent.starts_with('\t')) ++tabs;
    if (indent.starts_with(' ')) ++spaces;
    const size_t width = width_of(indent);
    if (width > before) ++counts[width - before];
    before = width;
  }
  if (tabs > spaces) return "\t";
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counts.end() ? "" : std::string(most->first, ' ');
}

// Less deep by so many levels.
std::string shallower(std::string indent, size_t levels, const std::string& step) {
  for (; levels > 0 && !step.empty() && indent.ends_with(step); --levels) indent.resize(indent.size() - step.size());
  return levels == 0 ? indent : "";
}

}  // namespace

std::string_view indentation(std::string_view line) {
  return line.substr(0, std::min(line.find_first_not_of(" \t"), line.size()));
}

std::optional<std::vector<std::string>> indented_as_file(LinesOf old_lines, LinesOf file_lines, LinesOf new_lines,
                                                         LinesOf whole_file) {
  std::map<size_t, std::string> known;  // the file's indentation, by the depth in the old lines
  std::vector<size_t> widths;
  bool is_told = true;
  for (size_t i = 0; i < old_lines.size(); ++i) {
    if (is_blank_line(old_lines[i])) continue;
    const size_t width = width_of(indentation(old_lines[i]));
    const std::string in_file(indentation(file_lines[i]));
    widths.push_back(width);
    is_told = is_told && known.try_emplace(width, in_file).first->second == in_file;
  }
  std::vector<std::string> result;
  // Depths that say nothing: then a line has that of the one that it stands in place of.
  if (!is_told) {
    // Or it is written as the file is.
    const auto is_as_file = [&](std::string_view line) {
      return is_blank_line(line) || (!known.contains(width_of(indentation(line))) &&
                                     std::any_of(file_lines.begin(), file_lines.end(),
                                                 [&](auto other) { return indentation(other) == indentation(line); }));
    };
    if (std::all_of(new_lines.begin(), new_lines.end(), is_as_file))
      return std::vector<std::string>(new_lines.begin(), new_lines.end());
    if (new_lines.size() != old_lines.size()) return std::nullopt;
    for (size_t i = 0; i < new_lines.size(); ++i) {
      const bool same_depth = indentation(new_lines[i]) == indentation(old_lines[i]);
      if (!same_depth || is_blank_line(old_lines[i]) != is_blank_line(new_lines[i])) return std::nullopt;
      result.push_back(std::string(indentation(file_lines[i])) + std::string(trim(new_lines[i])));
    }
    return result;
  }
  if (known.empty()) return std::nullopt;
  for (const auto line : new_lines) {
    if (!is_blank_line(line)) widths.push_back(width_of(indentation(line)));
  }
  auto step = step_of_file(whole_file);
  size_t given_step = step_between(widths);
  // Two old lines of different depths tell how the steps belong together.
  if (known.size() > 1) {
    const auto first = known.begin(), second = std::next(first);
    const size_t given = second->first - first->first;
    if (second->second.starts_with(first->second) && second->second.size() > first->second.size()) {
      step = second->second.substr(first->second.size());
      given_step = given;
    }
  }
  if (step.empty()) step = std::string(given_step == 0 ? 4 : given_step, ' ');
  for (const auto line : new_lines) {
    if (is_blank_line(line)) {
      result.emplace_back();
      continue;
    }
    const auto text = line.substr(indentation(line).size());
    const size_t width = width_of(indentation(line));
    const auto above = known.upper_bound(width);
    if (above == known.begin()) {
      const size_t difference = above->first - width;
      const size_t levels = given_step == 0 ? 1 : (difference + given_step - 1) / given_step;
      result.push_back(shallower(above->second, levels, step).append(text));
      continue;
    }
    const auto& [depth, indent] = *std::prev(above);
    const size_t difference = width - depth;
    std::string deeper = indent;
    const size_t levels = given_step == 0 ? 0 : difference / given_step;
    for (size_t i = 0; i < levels; ++i) deeper += step;
    deeper.append(given_step == 0 ? difference : difference % given_step, ' ');
    result.push_back(deeper.append(text));
  }
  return result;
}

}  // namespace tandem::envs
