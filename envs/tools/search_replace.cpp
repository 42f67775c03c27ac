// search_replace: an exact match first, then one that forgives trailing spaces and indentation, else the nearest lines.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "envs/tools/editable_text.h"
#include "envs/tools/functions.h"
#include "envs/tools/indentation.h"
#include "envs/tools/output.h"
#include "envs/tools/paths.h"

namespace tandem::envs {
namespace {

size_t count_of(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

struct LooseMatch {
  std::string content;  // the whole file after the replacement
  size_t places = 0;
  bool can_be_indented = true;  // where there is one place
};

// Windows of whole lines that equal `old_text` but for spaces at both ends of each line. The new lines get the file's
// indentation.
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
  const auto new_lines = split_lines(new_text);
  const auto indented = indented_as_file(wanted, std::span(file).subspan(place, wanted.size()), new_lines, file);
  match.can_be_indented = indented.has_value();
  if (!indented) return match;
  std::vector<std::string> lines(file.begin(), file.begin() + static_cast<long>(place));
  // Lines that stay have the bytes of the file: spaces at a line's end mean something in Markdown.
  const auto kept = lines_that_stay(wanted, new_lines);
  for (size_t i = 0; i < new_lines.size(); ++i)
    lines.emplace_back(kept[i] == kNewLine ? (*indented)[i] : std::string(file[place + kept[i]]));
  for (size_t i = place + wanted.size(); i < file.size(); ++i) lines.emplace_back(file[i]);
  match.content = join(lines, "\n");
  return match;
}

constexpr char kAnyLetter = '\x1A';

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

// The code point at the start of a text, and how many bytes it takes; a byte that is none by itself.
std::pair<uint32_t, size_t> first_letter(std::string_view text) {
  const size_t length = std::max<size_t>(utf8_length(text), 1);
  uint32_t letter = static_cast<unsigned char>(text[0]);
  if (length > 1) letter &= 0xFFu >> (length + 1);
  for (size_t i = 1; i < length; ++i) letter = letter << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
  return {letter, length};
}

std::string named_letter(std::string_view text) {
  if (text.empty()) return "nothing";
  const auto [letter, length] = first_letter(text);
  constexpr std::pair<uint32_t, const char*> kNames[] = {{' ', "space"},
                                                         {'\t', "tab"},
                                                         {'\r', "carriage return"},
                                                         {0xA0, "no-break space"},
                                                         {0x200B, "zero-width space"},
                                                         {0x202F, "narrow no-break space"},
                                                         {0xFEFF, "byte order mark"},
                                                         {0x301, "combining acute"},
                                                         {0x308, "combining diaeresis"},
                                                         {0x2019, "right quotation mark"}};
  std::string name = fmt::format("U+{:04X}", letter);
  for (const auto& [known, words] : kNames) {
    if (known == letter) return name + " (" + words + ")";
  }
  return letter >= 0x20 && letter < 0x7F ? name + " (" + std::string(1, static_cast<char>(letter)) + ")" : name;
}

// A line with one sign for each letter that another one may look like: what is not ASCII, with the accents behind it,
// and tabs. What has no width is gone.
std::string outline(std::string_view line) {
  std::string text;
  while (!line.empty()) {
    const auto [letter, length] = first_letter(line);
    line.remove_prefix(length);
    const bool is_accent = letter >= 0x300 && letter < 0x370;
    const bool is_nothing = (letter >= 0x200B && letter <= 0x200F) || letter == 0xFEFF || letter == 0xAD;
    if (is_accent && !text.empty())
      text.back() = kAnyLetter;
    else if (!is_nothing)
      text += letter < 0x80 && letter != '\t' ? static_cast<char>(letter) : kAnyLetter;
  }
  return text;
}

bool look_alike(std::string_view a, std::string_view b) {
  if (a == b) return false;
  const auto left = outline(a), right = outline(b);
  return left.size() == right.size() && std::equal(left.begin(), left.end(), right.begin(), [](char l, char r) {
           return l == r || l == kAnyLetter || r == kAnyLetter;
         });
}

// Where the first of the wanted lines that is not in the file differs from the line that is most like it, in letters
// that can look the same.
std::string unseen_difference(std::string_view content, std::string_view old_text, std::string_view old_name) {
  constexpr size_t kMostLines = 20'000;
  const auto lines = split(content, '\n');
  for (const auto line : split(old_text, '\n')) {
    const auto wanted = trim(line);
    if (wanted.empty()) continue;
    if (std::any_of(lines.begin(), lines.end(), [&](auto other) { return trim(other) == wanted; })) continue;
    double best = 0.5;
    size_t at = lines.size();
    for (size_t i = 0; i < std::min(lines.size(), kMostLines); ++i) {
      if (look_alike(trim(lines[i]), wanted)) {
        at = i;
        break;
      }
      if (const double score = likeness(trim(lines[i]), wanted); score > best) best = score, at = i;
    }
    if (at == lines.size()) return "";
    const auto there = trim(lines[at]);
    size_t same = 0, letters = 0;
    while (same < std::min(there.size(), wanted.size())) {
      const auto [a, length] = first_letter(there.substr(same));
      if (a != first_letter(wanted.substr(same)).first) break;
      same += length;
      ++letters;
    }
    const auto left = there.substr(same), right = wanted.substr(same);
    const auto is_plain = [](std::string_view rest) {
      return rest.empty() || (static_cast<unsigned char>(rest[0]) < 0x80 && rest[0] >= ' ');
    };
    if (is_plain(left) && is_plain(right)) {
      // A letter and its accent apart: the difference is behind the letter.
      const bool apart =
          (left.size() > 1 && !is_plain(left.substr(1))) || (right.size() > 1 && !is_plain(right.substr(1)));
      if (!apart) return "";
    }
    return fmt::format("Line {} differs at character {}: the file has {} there, {} has {}.", at + 1, letters + 1,
                       named_letter(left), old_name, named_letter(right));
  }
  return "";
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

std::string why_not_there(std::string_view content, std::string_view old_text, std::string_view old_name) {
  const auto near = nearest_lines(content, old_text);
  if (const auto foreign = foreign_byte(content); foreign.line > 0) {
    return fmt::format(
        "{}The file is not UTF-8: line {} has the byte 0x{:02X}, which is shown as U+FFFD and cannot be written in "
        "{}; "
        "edit lines without such bytes, or use a command (`iconv -f LATIN1 -t UTF-8` makes UTF-8 of Latin-1)",
        near.empty() ? ". " : ". The nearest lines are:\n" + near, foreign.line, foreign.value, old_name);
  }
  auto difference = unseen_difference(content, old_text, old_name);
  if (content.find('\r') != std::string_view::npos && content.find('\n') == std::string_view::npos)
    difference =
        "The lines of the file end in a carriage return alone (\\r), which is shown as U+FFFD; give \\r between lines.";
  if (near.empty()) return difference.empty() ? "; read the file and copy the text exactly" : ". " + difference;
  return ". The nearest lines are:\n" + near + (difference.empty() ? "Copy the text exactly." : difference);
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

  const auto editable = EditableText::of(*content, name);
  if (!editable) return ToolOutcome::refused(editable.error().message());
  const std::string before = std::exchange(*content, editable->text());
  old_text = editable->adapted(old_text);
  new_text = editable->adapted(new_text);
  if (content->find('\r') == std::string::npos && old_text.find("\r\n") != std::string::npos) {
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
      return ToolOutcome::refused(old_name + " was not found in " + name + why_not_there(*content, old_text, old_name));
    }
    if (!loose.can_be_indented) {
      return ToolOutcome::refused(
          old_name + " was found only with another indentation, and " + new_name +
          " does not tell how deep its lines belong; copy the lines exactly as they are in the file");
    }
    result = std::move(loose.content);
    changed = 1;
    note = " Spaces at line ends and indentation were not as in " + old_name + "; the file's indentation was kept.";
  }
  if (result == *content) return ToolOutcome::refused("the edit would change nothing in " + name);
  const auto restored = editable->restored(result);
  if (auto status = replace_content(*path, restored); !status) return ToolOutcome::refused(status.message());
  return ToolOutcome::edited("Edited " + shown(context, *path) + ": replaced " + std::to_string(changed) +
                                 (changed == 1 ? " occurrence." : " occurrences.") + note,
                             {change_of(*path, before, restored)});
}

ToolOutcome tool_search_replace(const ToolContext& context, const Json& arguments) {
  return replace_text(context, {.path = arguments.at("file_path").get<std::string>(),
                                .old_text = arguments.at("old_string").get<std::string>(),
                                .new_text = arguments.at("new_string").get<std::string>(),
                                .all = arguments.value("replace_all", false)});
}

}  // namespace tandem::envs
