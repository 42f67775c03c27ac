#include "envs/tasks/grade.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "envs/tasks/call_check.h"
#include "envs/tasks/command_check.h"
#include "envs/tasks/term.h"

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

Term find_contents(const Files& expected, const Files& left_behind) {
  for (const auto& [path, content] : expected) {
    const auto found = left_behind.find(path);
    if (found == left_behind.end()) return {.why = path + " is not there"};
    if (without_last_end(found->second) != without_last_end(content)) return {.why = path + " is not as expected"};
  }
  return {.value = 1};
}

// Isolated mode: neither the environment nor files of the workspace can stand in for the standard library.
CheckCommand command_of(const HiddenTest& test) {
  return {.command = "/usr/bin/python3 -I - <<'TANDEM_END'\n" + test.driver + "\nTANDEM_END\n",
          .output = join(test.expected, "\n") + "\n",
          .seconds = 0};
}

// With those files of the base that are asked about.
Files with_base(const Task& task, const Files& asked, Files files, const std::set<std::string>& removed) {
  if (!task.base || !task.base->tree) return files;
  for (const auto& [path, content] : asked) {
    if (files.contains(path) || removed.contains(path)) continue;
    if (auto kept = read_base_file(*task.base->tree, path)) files[path] = std::move(*kept);
  }
  return files;
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

Result<Grade> grade(const Task& task, const Files& left_behind, std::string_view final_answer, const Runner& runner,
                    const std::set<std::string>& programs, const std::set<std::string>& removed,
                    const TreeDetails& details) {
  Grade result;
  const auto& expected = task.expectation;
  std::optional<double> tests_passed;
  std::map<std::string, double> metrics;
  const auto judge_term = [&](const char* name, Term term) {
    result.terms[name] = term.value;
    if (term.share) tests_passed = term.share;
    metrics.merge(term.metrics);
    if (term.value != 1 && result.why.empty()) result.why = name + (": " + term.why);
  };
  if (expected.files) {
    judge_term("files", same_files(*expected.files, left_behind) ? Term{.value = 1} : Term{.why = "not as expected"});
  }
  if (!expected.contains.empty())
    judge_term("contents", find_contents(expected.contains, with_base(task, expected.contains, left_behind, removed)));
  if (expected.answer) {
    const bool right = answer_matches(final_answer, *expected.answer, expected.distractors);
    judge_term("answer", right ? Term{.value = 1} : Term{.why = "not as expected"});
  }
  if (expected.hidden_test) {
    // Nothing was changed: the failing test of the start still fails.
    Term term{.why = "nothing was changed"};
    if (!same_files(task.files, left_behind)) {
      const CheckCommand driver = command_of(*expected.hidden_test);
      term = judge(driver, TRY(runner({.files = left_behind}, {&driver, 1})).at(0));
    }
    judge_term("tests", std::move(term));
  }
  if (expected.commands) {
    judge_term("tests", TRY(run_commands(task, left_behind, programs, removed, details, runner)));
  }
  if (expected.calls) judge_term("tests", TRY(run_calls(*expected.calls, left_behind, runner)));
  const bool all =
      std::all_of(result.terms.begin(), result.terms.end(), [](const auto& term) { return term.second == 1; });
  result.reward = all && !result.terms.empty() ? 1 : 0;
  if (expected.commands && expected.commands->leaves_reward) result.reward = result.terms.at("tests");
  if (tests_passed) result.terms["tests_passed"] = *tests_passed;
  result.terms.merge(metrics);
  return result;
}

}  // namespace tandem::envs
