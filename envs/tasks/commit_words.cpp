#include "envs/tasks/commit_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <regex>

#include "base/text.h"
#include "base/utf8.h"

namespace tandem::envs {
namespace {

constexpr size_t kMostMessageBytes = 8'000;
constexpr size_t kMostLineBytes = 1'000;  // that std::regex, which recurses, is given

bool is_word_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// "Signed-off-by: A", "(cherry picked from commit 0123)", "git-svn-id: ...".
bool is_trailer(std::string_view line) {
  if (line.starts_with("(cherry picked from ") || line.starts_with("git-svn-id:")) return true;
  const size_t colon = line.find(": ");
  if (colon == std::string_view::npos || colon == 0) return false;
  const auto key = line.substr(0, colon);
  const bool fits = std::all_of(key.begin(), key.end(), [](char c) { return is_word_character(c) || c == '-'; });
  constexpr std::string_view kKnown[] = {"Fixes", "Closes", "Resolves", "Refs", "Bug", "Issue", "See", "Link", "Cc"};
  const bool known = std::find(std::begin(kKnown), std::end(kKnown), key) != std::end(kKnown);
  return fits && (known || key.find('-') != std::string_view::npos);
}

std::string without_links(std::string_view line) {
  if (line.size() > kMostLineBytes) return std::string(line);
  static const std::regex kIssue(
      R"(\s*[\(\[]?\b(?:(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?|refs?|see|issue|bug|part of|re)\s*:?\s*)*)"
      R"((?:(?:[\w.-]+/[\w.-]+)?#|GH-|gh-|PR\s*#?)\d+(?:\s*(?:,|and)\s*(?:#|GH-|gh-)\d+)*[\)\]]?)",
      std::regex::icase);
  static const std::regex kBareIssue(R"(\s*[\(\[]?#\d+[\)\]]?)");
  static const std::regex kLink(R"(\s*[<\(]?https?://\S+[>\)]?)");
  static const std::regex kCommit(R"(\s*\b(?:commit\s+)?[0-9a-f]{12,64}\b)");
  std::string text(line);
  for (const auto& pattern : {kLink, kIssue, kBareIssue, kCommit}) text = std::regex_replace(text, pattern, "");
  return text;
}

std::string without_space_at_ends(std::string_view line) {
  const size_t last = line.find_last_not_of(" \t\r");
  return std::string(line.substr(0, last == std::string_view::npos ? 0 : last + 1));
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 32 && c != '\n' && c != '\t' && c != '\r') || byte == 127;
  });
}

bool has_hash_comments(std::string_view path) {
  constexpr std::string_view kEnds[] = {".py", ".pyi", ".sh", ".bash", ".rb", ".pl", ".yaml", ".yml", ".toml", ".cfg"};
  return std::any_of(std::begin(kEnds), std::end(kEnds), [&](auto end) { return path.ends_with(end); });
}

// The place behind `end`, or the end of the code.
size_t behind(std::string_view code, std::string_view end, size_t from) {
  const size_t at = code.find(end, from);
  return at == std::string_view::npos ? code.size() : at + end.size();
}

CodeWords new_words(const std::vector<ChangedText>& files) {
  CodeWords before, after, fresh;
  for (const auto& file : files) {
    before.names.merge(words_of_code(file.path, file.before).names);
    before.texts.merge(words_of_code(file.path, file.before).texts);
    auto words = words_of_code(file.path, file.after);
    after.names.merge(words.names);
    after.texts.merge(words.texts);
  }
  std::set_difference(after.names.begin(), after.names.end(), before.names.begin(), before.names.end(),
                      std::inserter(fresh.names, fresh.names.end()));
  std::set_difference(after.texts.begin(), after.texts.end(), before.texts.begin(), before.texts.end(),
                      std::inserter(fresh.texts, fresh.texts.end()));
  return fresh;
}

}  // namespace

std::string message_of_task(std::string_view message) {
  if (!is_valid_utf8(message) || has_control(message)) return "";
  std::vector<std::string> lines;
  for (const auto line : split(message.substr(0, kMostMessageBytes), '\n'))
    lines.push_back(without_space_at_ends(line));
  const auto drop_empty_end = [&] {
    while (!lines.empty() && lines.back().empty()) lines.pop_back();
  };
  drop_empty_end();
  while (lines.size() > 1 && is_trailer(lines.back())) {
    lines.pop_back();
    drop_empty_end();
  }
  std::string text;
  for (const auto& line : lines) {
    const auto kept = without_space_at_ends(without_links(line));
    if (kept.empty() && (text.empty() || text.ends_with("\n\n"))) continue;
    // What is left of a line that was nothing but a link: "See" or "(".
    if (kept != line && words_of_message(kept) < 2 && words_of_message(line) > 0 && !text.empty()) continue;
    text += kept + "\n";
  }
  // What the cut may have left of a character.
  return replace_invalid_utf8(trim(text));
}

size_t words_of_message(std::string_view text) {
  size_t words = 0;
  bool inside = false;
  for (const char c : text) {
    const bool letter = std::isalpha(static_cast<unsigned char>(c)) || (static_cast<unsigned char>(c) & 0x80) != 0;
    const bool part =
        letter || (inside && (std::isdigit(static_cast<unsigned char>(c)) || c == '_' || c == '\'' || c == '.'));
    if (part && !inside) ++words;
    inside = part;
  }
  return words;
}

CodeWords words_of_code(std::string_view path, std::string_view code) {
  CodeWords words;
  const bool hash = has_hash_comments(path);
  for (size_t i = 0; i < code.size();) {
    const char c = code[i];
    if (hash && c == '#') {
      i = behind(code, "\n", i);
    } else if (!hash && code.substr(i, 2) == "//") {
      i = behind(code, "\n", i);
    } else if (!hash && code.substr(i, 2) == "/*") {
      i = behind(code, "*/", i + 2);
    } else if (const auto three = code.substr(i, 3); hash && (three == "\"\"\"" || three == "'''")) {
      i = behind(code, three, i + 3);
    } else if (c == '"' || c == '\'') {
      size_t end = i + 1;
      while (end < code.size() && code[end] != c && code[end] != '\n') end += code[end] == '\\' ? 2 : 1;
      end = std::min(end, code.size());
      const auto text = code.substr(i + 1, end - i - 1);
      if (end < code.size() && code[end] == c && text.size() >= 3 && text.size() <= 80 && words_of_message(text) > 0)
        words.texts.emplace(text);
      i = end + 1;
    } else if (is_word_character(c)) {
      size_t end = i;
      while (end < code.size() && is_word_character(code[end])) ++end;
      if (end - i >= 3 && !std::isdigit(static_cast<unsigned char>(c))) words.names.emplace(code.substr(i, end - i));
      i = end;
    } else {
      ++i;
    }
  }
  return words;
}

std::vector<std::string> untold_words(const std::vector<ChangedText>& source, const std::vector<ChangedText>& tests,
                                      std::string_view message) {
  const auto in_source = new_words(source), in_tests = new_words(tests);
  const auto said = words_of_code(".message", message).names;
  std::vector<std::string> untold;
  for (const auto& name : in_tests.names) {
    if (in_source.names.contains(name) && !said.contains(name)) untold.push_back(name);
  }
  for (const auto& text : in_tests.texts) {
    if (in_source.texts.contains(text) && message.find(text) == std::string_view::npos)
      untold.push_back("\"" + text + "\"");
  }
  return untold;
}

std::string instruction_of_commit(std::string_view project, std::string_view message,
                                  const std::vector<std::string>& untold) {
  std::string text =
      fmt::format("The folder holds the source of {}. Make this change in it:\n\n{}\n", project, message);
  if (!untold.empty()) {
    text += "\nThe tests of the change use these names and texts, which the change brings in:\n";
    for (const auto& each : untold) text += "- " + each + "\n";
  }
  return text + "\nTests that you do not see decide. Those that pass now must pass then, too.";
}

}  // namespace tandem::envs
