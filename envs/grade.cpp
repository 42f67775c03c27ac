#include "envs/grade.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace tandem::envs {
namespace {

bool is_word_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Spaces, quotes, emphasis and one full stop around a value.
std::string_view bare(std::string_view text) {
  const auto strip = [&] {
    const auto old = text;
    text = trim(text);
    while (!text.empty() && std::string_view("\"'`*").find(text.front()) != std::string_view::npos)
      text.remove_prefix(1);
    while (!text.empty() && std::string_view("\"'`*").find(text.back()) != std::string_view::npos)
      text.remove_suffix(1);
    return text.size() != old.size();
  };
  while (strip()) {
  }
  if (text.ends_with('.')) text.remove_suffix(1);
  while (strip()) {
  }
  return text;
}

bool has_word(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const bool left = at == 0 || !is_word_letter(text[at - 1]);
    const size_t end = at + word.size();
    const bool right = end == text.size() || !is_word_letter(text[end]);
    if (left && right) return true;
  }
  return false;
}

std::vector<std::string> numbers_in(std::string_view text) {
  std::vector<std::string> numbers;
  std::string word;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ' ';
    if (is_word_letter(c) || (c == '.' && !word.empty() && i + 1 < text.size() && is_word_letter(text[i + 1]))) {
      word += c;
      continue;
    }
    if (!word.empty() && std::all_of(word.begin(), word.end(), [](char d) { return std::isdigit(d) || d == '.'; })) {
      numbers.push_back(word);
    }
    word.clear();
  }
  return numbers;
}

// The parts of the text between pairs of the same quote.
std::vector<std::string_view> quoted_parts(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '`' && text[i] != '"') continue;
    const size_t end = text.find(text[i], i + 1);
    if (end == std::string_view::npos) break;
    parts.push_back(text.substr(i + 1, end - i - 1));
    i = end;
  }
  return parts;
}

std::string without_last_end(const std::string& content) {
  return content.ends_with('\n') ? content.substr(0, content.size() - 1) : content;
}

bool same_files(const Files& left, const Files& right) {
  const auto counts = [](const Files& files) {
    return std::count_if(files.begin(), files.end(),
                         [](const auto& file) { return file.first.find("__pycache__") == std::string::npos; });
  };
  if (counts(left) != counts(right)) return false;
  for (const auto& [path, content] : left) {
    const auto other = right.find(path);
    if (path.find("__pycache__") != std::string::npos) continue;
    if (other == right.end() || without_last_end(other->second) != without_last_end(content)) return false;
  }
  return true;
}

}  // namespace

bool answer_matches(std::string_view answer, std::string_view expected, const std::vector<std::string>& distractors) {
  if (bare(answer) == expected) return true;
  const auto lines = split(trim(answer), '\n');
  if (bare(lines.back()) == expected) return true;
  const auto quoted = quoted_parts(answer);
  if (quoted.size() == 1) return bare(quoted[0]) == expected;
  size_t words = 0;
  for (size_t i = 0; i < answer.size(); ++i) {
    if (!std::isspace(static_cast<unsigned char>(answer[i])) &&
        (i == 0 || std::isspace(static_cast<unsigned char>(answer[i - 1])))) {
      ++words;
    }
  }
  if (words > 20 || !has_word(answer, expected)) return false;
  for (const auto& distractor : distractors) {
    if (has_word(answer, distractor)) return false;
  }
  const auto numbers = numbers_in(answer);
  const bool number = std::all_of(expected.begin(), expected.end(), [](char c) { return std::isdigit(c); });
  return !number || std::all_of(numbers.begin(), numbers.end(), [&](const auto& other) { return other == expected; });
}

Result<Grade> grade(const Task& task, const Files& left_behind, std::string_view final_answer, const Runner& runner) {
  Grade result;
  const auto& expected = task.expectation;
  if (expected.files) result.terms["files"] = same_files(*expected.files, left_behind) ? 1 : 0;
  if (expected.answer) {
    result.terms["answer"] = answer_matches(final_answer, *expected.answer, expected.distractors) ? 1 : 0;
  }
  if (expected.hidden_test) {
    // Nothing was changed: the failing test of the start still fails.
    bool passed = !same_files(task.files, left_behind);
    if (passed)
      passed =
          TRY(runner(left_behind, expected.hidden_test->driver)) == join(expected.hidden_test->expected, "\n") + "\n";
    result.terms["tests"] = passed ? 1 : 0;
  }
  const bool all =
      std::all_of(result.terms.begin(), result.terms.end(), [](const auto& term) { return term.second == 1; });
  result.reward = all && !result.terms.empty() ? 1 : 0;
  return result;
}

}  // namespace tandem::envs
