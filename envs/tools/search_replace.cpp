// search_replace: an exact match first, then one that forgives trailing spaces and indentation, else the nearest lines.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "envs/tools/functions.h"
#include "envs/tools/paths.h"

namespace tandem::envs {
namespace {

size_t count_of(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

std::string_view indentation(std::string_view line) { return line.substr(0, line.find_first_not_of(" \t")); }

struct LooseMatch {
  std::string content;  // the whole file after the replacement
  size_t places = 0;
};

// Windows of whole lines that equal `old_text` but for spaces at both ends of each line. The new lines keep the
// difference in indentation that they had to the old ones.
LooseMatch match_loosely(const std::string& content, std::string_view old_text, std::string_view new_text) {
  LooseMatch match;
  const auto file = split(content, '\n');
  const auto wanted = split_lines(old_text);
  const bool blank = std::all_of(wanted.begin(), wanted.end(), [](auto line) { return trim(line).empty(); });
  if (blank || wanted.size() > file.size()) return match;
  size_t place = 0;
  for (size_t i = 0; i + wanted.size() <= file.size(); ++i) {
    bool same = true;
    for (size_t k = 0; same && k < wanted.size(); ++k) same = trim(file[i + k]) == trim(wanted[k]);
    if (same && ++match.places == 1) place = i;
  }
  if (match.places != 1) return match;
  const auto old_indent = indentation(wanted[0]), file_indent = indentation(file[place]);
  std::vector<std::string> lines(file.begin(), file.begin() + static_cast<long>(place));
  for (auto line : split_lines(new_text)) {
    if (trim(line).empty()) {
      lines.emplace_back(line);
    } else {
      const auto rest =
          line.starts_with(old_indent) ? line.substr(old_indent.size()) : line.substr(indentation(line).size());
      lines.push_back(std::string(file_indent).append(rest));
    }
  }
  for (size_t i = place + wanted.size(); i < file.size(); ++i) lines.emplace_back(file[i]);
  match.content = join(lines, "\n");
  return match;
}

// How alike two lines are, by the pairs of letters they share: 0 nothing, 1 the same.
double likeness(std::string_view a, std::string_view b) {
  const auto pairs = [](std::string_view text) {
    std::multiset<std::pair<char, char>> found;
    for (size_t i = 0; i + 1 < std::min<size_t>(text.size(), 400); ++i) found.insert({text[i], text[i + 1]});
    return found;
  };
  const auto left = pairs(a), right = pairs(b);
  if (left.empty() || right.empty()) return a == b ? 1 : 0;
  std::vector<std::pair<char, char>> both;
  std::set_intersection(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(both));
  return 2.0 * static_cast<double>(both.size()) / static_cast<double>(left.size() + right.size());
}

}  // namespace

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  size_t begin = 0;
  for (size_t at; (at = text.find(from, begin)) != std::string_view::npos; begin = at + from.size()) {
    result.append(text.substr(begin, at - begin)).append(to);
  }
  return result.append(text.substr(begin));
}

std::string nearest_lines(std::string_view content, std::string_view old_text) {
  std::string_view wanted;
  for (auto line : split(old_text, '\n')) {
    if (wanted = trim(line); !wanted.empty()) break;
  }
  std::vector<std::pair<double, size_t>> scores;
  const auto lines = split(content, '\n');
  for (size_t i = 0; i < std::min<size_t>(lines.size(), 20'000); ++i) {
    if (const double score = likeness(trim(lines[i]), wanted); score >= 0.3) scores.push_back({-score, i});
  }
  std::sort(scores.begin(), scores.end());
  scores.resize(std::min<size_t>(scores.size(), 3));
  std::sort(scores.begin(), scores.end(), [](auto& a, auto& b) { return a.second < b.second; });
  std::string text;
  for (const auto& [score, line] : scores) text += numbered(line + 1, lines[line]);
  return text;
}

bool has_windows_ends(std::string_view content) {
  const size_t ends = count_of(content, "\n");
  return ends > 0 && count_of(content, "\r\n") == ends;
}

Result<fs::path> file_to_edit(const ToolContext& context, const std::string& name) {
  auto path = TRY(resolve(context, name));
  std::error_code error;
  if (fs::is_directory(path, error)) return fail(Status::invalid("\"" + name + "\" is a folder; name a file in it"));
  if (!fs::exists(path, error)) return fail(Status::invalid(missing_file(context, name)));
  if (!fs::is_regular_file(path, error)) return fail(Status::invalid("\"" + name + "\" is not a regular file"));
  return path;
}

ToolOutcome replace_text(const ToolContext& context, const Replacement& replacement) {
  const auto& name = replacement.path;
  auto old_text = replacement.old_text, new_text = replacement.new_text;
  const std::string old_name(replacement.old_name), new_name(replacement.new_name);
  const auto path = file_to_edit(context, name);
  if (!path) return ToolOutcome::refused(path.error().message());
  if (old_text.empty()) {
    return ToolOutcome::refused(old_name + " is empty; give the text to replace, or use " +
                                std::string(replacement.for_whole_files) + " for the whole file");
  }
  if (old_text == new_text) {
    return ToolOutcome::refused(old_name + " and " + new_name + " are the same; the edit would change nothing");
  }
  auto content = read_file(*path, kLargestFile);
  if (!content) return ToolOutcome::refused(content.error().message());

  const bool windows = has_windows_ends(*content);
  if (windows) {
    *content = replaced(*content, "\r\n", "\n");
    old_text = replaced(old_text, "\r\n", "\n");
    new_text = replaced(new_text, "\r\n", "\n");
  }
  const size_t places = count_of(*content, old_text);
  std::string result, note;
  size_t changed = places;
  if (places > 1 && !replacement.all) {
    return ToolOutcome::refused(old_name + " occurs " + std::to_string(places) + " times in " + name +
                                "; add surrounding lines so that it occurs once" +
                                std::string(replacement.for_all_places));
  }
  if (places > 0) {
    result = replaced(*content, old_text, new_text);
  } else {
    auto loose = match_loosely(*content, old_text, new_text);
    if (loose.places > 1) {
      return ToolOutcome::refused(old_name + " was not found as it is written, and " + std::to_string(loose.places) +
                                  " places are equal but for spaces; copy the lines exactly as they are in the file");
    }
    if (loose.places == 0) {
      const auto near = nearest_lines(*content, old_text);
      return ToolOutcome::refused(old_name + " was not found in " + name +
                                  (near.empty() ? "; read the file and copy the text exactly"
                                                : ". The nearest lines are:\n" + near + "Copy the text exactly."));
    }
    result = std::move(loose.content);
    changed = 1;
    note = " Spaces at line ends and indentation were not as in " + old_name + "; the file's indentation was kept.";
  }
  if (result == *content) return ToolOutcome::refused("the edit would change nothing in " + name);
  if (windows) result = replaced(result, "\n", "\r\n");
  if (auto status = replace_content(*path, result); !status) return ToolOutcome::refused(status.message());
  auto outcome = ToolOutcome::done("Edited " + shown(context, *path) + ": replaced " + std::to_string(changed) +
                                   (changed == 1 ? " occurrence." : " occurrences.") + note);
  outcome.changed_files = true;
  return outcome;
}

ToolOutcome tool_search_replace(const ToolContext& context, const Json& arguments) {
  return replace_text(context, {.path = arguments.at("file_path").get<std::string>(),
                                .old_text = arguments.at("old_string").get<std::string>(),
                                .new_text = arguments.at("new_string").get<std::string>(),
                                .all = arguments.value("replace_all", false)});
}

}  // namespace tandem::envs
