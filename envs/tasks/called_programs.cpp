#include "envs/tasks/called_programs.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/text.h"

namespace tandem::envs {
namespace {

bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

template <size_t kCount>
bool is_one_of(const std::array<std::string_view, kCount>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

// Behind these a command begins.
constexpr std::array<std::string_view, 12> kKeywords = {"if",    "then", "else", "elif", "do",   "while",
                                                        "until", "!",    "{",    "time", "eval", "exec"};
// These start what follows their options.
constexpr std::array<std::string_view, 18> kStarters = {"sudo",   "env",     "xargs",   "nohup",   "nice", "setsid",
                                                        "stdbuf", "timeout", "flock",   "ionice",  "doas", "command",
                                                        "chroot", "strace",  "runuser", "unshare", "chrt", "taskset"};
constexpr std::array<std::string_view, 4> kBeforeProgram = {"-exec", "-execdir", "-ok", "-m"};

bool is_assignment(std::string_view word) {
  const size_t equals = word.find('=');
  return equals != std::string_view::npos && equals > 0 && std::all_of(word.begin(), word.begin() + equals, is_of_name);
}

class ShellReader {
 public:
  ShellReader(std::string_view text, const std::set<std::string>& functions, int depth)
      : text_(text), functions_(functions), depth_(depth) {}

  std::vector<std::string> read() {
    while (at_ < text_.size()) step();
    return std::move(called_);
  }

 private:
  void begin_command() {
    at_command_ = true;
    behind_starter_ = 0;
    in_function_ = false;
    last_.clear();
  }

  void step() {
    const char c = text_[at_];
    if (c == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') {
      at_ += 2;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '\n' && !ends_.empty()) {
      ++at_;
      read_texts_in_place();
      begin_command();
    } else if (c == '\n' || c == ';' || c == '|' || c == '&' || c == '(' || c == ')' || c == '`') {
      ++at_;
      begin_command();
    } else if (c == '<' || c == '>') {
      const size_t begin = at_;
      while (at_ < text_.size() && (text_[at_] == '<' || text_[at_] == '>' || text_[at_] == '&')) ++at_;
      const bool in_place = text_.substr(begin, at_ - begin) == "<<";
      if (in_place && at_ < text_.size() && text_[at_] == '-') ++at_;
      while (at_ < text_.size() && text_[at_] == ' ') ++at_;
      if (at_ >= text_.size() || text_[at_] == '(') return;
      auto file = word();  // no argument
      if (in_place) ends_.push_back(std::move(file));
    } else {
      const size_t before = at_;
      take(word());
      if (at_ == before) ++at_;
    }
  }

  // One word without its quotes. What it runs by $(...) is read as a text of its own.
  std::string word() {
    std::string made;
    char quote = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\\' && quote != '\'' && at_ + 1 < text_.size()) {
        if (text_[at_ + 1] != '\n') made += text_[at_ + 1];
        at_ += 2;
      } else if (quote != '\'' && (text_.substr(at_).starts_with("$(") || (c == '`' && quote == '"'))) {
        made += inner();
      } else if (quote != 0) {
        quote = c == quote ? 0 : quote;
        if (quote != 0) made += c;
        ++at_;
      } else if (c == '\'' || c == '"') {
        quote = c;
        ++at_;
      } else if (std::string_view(" \t\r\n;|&()<>`").find(c) != std::string_view::npos) {
        break;
      } else {
        made += c;
        ++at_;
      }
    }
    return made;
  }

  // "$(...)" or a text between backticks, with what it calls; as a variable of no name.
  std::string inner() {
    const bool is_tick = text_[at_] == '`';
    at_ += is_tick ? 1 : 2;
    const size_t begin = at_;
    int depth = 1;
    for (; at_ < text_.size() && depth > 0; ++at_) {
      if (is_tick)
        depth -= text_[at_] == '`' ? 1 : 0;
      else
        depth += text_[at_] == '(' ? 1 : text_[at_] == ')' ? -1 : 0;
    }
    add_all(text_.substr(begin, at_ - begin - (depth == 0 ? 1 : 0)));
    return "$";
  }

  // What stands between `<<END` and END: for a shell, or for nobody. Where no END follows it was none, as in
  // `(( 1 << bits ))`.
  void read_texts_in_place() {
    for (const auto& end : ends_) {
      const size_t begin = at_;
      bool has_end = false;
      while (at_ < text_.size()) {
        const size_t stop = std::min(text_.find('\n', at_), text_.size());
        const auto line = text_.substr(at_, stop - at_);
        const size_t before = at_;
        at_ = std::min(stop + 1, text_.size());
        if (trim(line) != end) continue;
        add_all(text_.substr(begin, before - begin));
        has_end = true;
        break;
      }
      if (!has_end) at_ = begin;
    }
    ends_.clear();
  }

  void add_all(std::string_view text) {
    if (depth_ == kDeepest) return;
    for (auto& each : ShellReader(text, functions_, depth_ + 1).read()) called_.push_back(std::move(each));
  }

  void take(std::string word) {
    if (word.empty()) return;
    if (word == "{") return begin_command();
    const bool is_option = word.starts_with('-') || word.starts_with('+');
    // bash -c 'jq . f', sh -ec "..."
    if (last_.starts_with('-') && !last_.starts_with("--") && last_.ends_with('c') && !is_option &&
        word.find(' ') != std::string::npos)
      add_all(word);
    if (is_one_of(kBeforeProgram, last_)) called_.push_back(word);
    if (at_command_) {
      if (is_assignment(word)) return;
      if (is_one_of(kKeywords, word)) {
        // `exec NAME` and `time NAME` may have options first.
        behind_starter_ = word == "exec" || word == "time" ? 1 : 0;
        at_command_ = behind_starter_ == 0;
      } else {
        behind_starter_ = starts_others(word) ? kBehindStarter : 0;
        in_function_ = functions_.contains(word);
        at_command_ = false;
        called_.push_back(word);
      }
    } else if (behind_starter_ > 0 && !is_option && !is_assignment(word)) {
      behind_starter_ = starts_others(word) ? kBehindStarter : behind_starter_ - 1;
      called_.push_back(word);
    } else if (in_function_ && !is_option) {
      // `run jq . x` where run is a function of "$@", and `check "jq . x"` where it evaluates that.
      word.find(' ') == std::string::npos ? called_.push_back(word) : add_all(word);
    }
    last_ = std::move(word);
  }

  static bool starts_others(std::string_view word) { return is_one_of(kStarters, word.substr(word.rfind('/') + 1)); }

  // Words that are no options: a time, a file of a lock, then the program.
  static constexpr int kBehindStarter = 3;
  static constexpr int kDeepest = 8;  // commands within commands

  const std::string_view text_;
  const std::set<std::string>& functions_;
  const int depth_;
  size_t at_ = 0;
  bool at_command_ = true;
  int behind_starter_ = 0;
  bool in_function_ = false;       // among the arguments of one
  std::vector<std::string> ends_;  // of texts in place that begin with the next line
  std::string last_;
  std::vector<std::string> called_;
};

// What a text gives a variable: `v=3.12`, `for v in 3.12 3.13`, `${v:-3.12}`.
std::vector<std::string> values_in_script(std::string_view name, std::string_view text) {
  constexpr size_t kMostValues = 16;
  std::vector<std::string> values;
  const auto add_words = [&](std::string_view words) {
    for (const auto each : split(words, ' ')) {
      auto value = trim(each);
      while (!value.empty() && (value.front() == '"' || value.front() == '\'')) value.remove_prefix(1);
      while (!value.empty() && std::string_view("\"';}").find(value.back()) != std::string_view::npos)
        value.remove_suffix(1);
      if (!value.empty() && value.find('$') == std::string_view::npos && values.size() < kMostValues)
        values.emplace_back(value);
    }
  };
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const auto rest = text.substr(at + name.size());
    if (at > 0 && is_of_name(text[at - 1])) continue;
    const auto before = trim(text.substr(0, at));
    if (rest.starts_with('=')) {
      const char quote = rest.size() > 1 && (rest[1] == '"' || rest[1] == '\'') ? rest[1] : ' ';
      const auto value = rest.substr(quote == ' ' ? 1 : 2);
      add_words(value.substr(0, std::min(value.find(quote), value.find('\n'))));
    } else if (rest.starts_with(" in ") && before.ends_with("for")) {
      add_words(rest.substr(4, rest.find_first_of(";\n") - 4));
    } else if (rest.starts_with(":-") || rest.starts_with(":=")) {
      add_words(rest.substr(2, rest.find('}') - 2));
    }
  }
  return values;
}

// Whether `program` may be what `word` becomes from here on.
bool may_become(std::string_view word, std::string_view text, std::string_view program, int depth) {
  const size_t dollar = word.find('$');
  if (dollar == std::string_view::npos) return word == program;
  if (!program.starts_with(word.substr(0, dollar)) || depth > 4) return false;
  program.remove_prefix(dollar);
  word.remove_prefix(dollar + 1);
  const bool in_braces = word.starts_with('{');
  if (in_braces) word.remove_prefix(1);
  const size_t end =
      std::min(static_cast<size_t>(std::find_if_not(word.begin(), word.end(), is_of_name) - word.begin()), word.size());
  const auto name = word.substr(0, end);
  word.remove_prefix(in_braces ? std::min(word.find('}') + 1, word.size()) : end);
  if (name == "HOME") return program.ends_with(word);
  if (name.empty()) return false;
  for (const auto& value : values_in_script(name, text)) {
    if (program.starts_with(value) && may_become(word, text, program.substr(value.size()), depth + 1)) return true;
  }
  return false;
}

}  // namespace

std::set<std::string> functions_of(std::string_view text) {
  std::set<std::string> functions = {"run"};  // of bats
  const auto is_of_function = [](char c) { return is_of_name(c) || c == '-'; };
  for (size_t at = text.find("()"); at != std::string_view::npos; at = text.find("()", at + 2)) {
    auto before = trim(text.substr(0, at));
    size_t begin = before.size();
    while (begin > 0 && is_of_function(before[begin - 1])) --begin;
    if (begin < before.size()) functions.emplace(before.substr(begin));
  }
  constexpr std::string_view kFunction = "function ";
  for (size_t at = text.find(kFunction); at != std::string_view::npos; at = text.find(kFunction, at + 1)) {
    const auto rest = text.substr(at + kFunction.size());
    functions.emplace(rest.substr(0, rest.find_first_of(" \t\n({")));
  }
  return functions;
}

std::vector<std::string> called_by_shell(std::string_view text, const std::set<std::string>& functions) {
  auto called = ShellReader(text, functions, 0).read();
  // Of Python, node and Perl in quotes and in place.
  constexpr std::array<std::string_view, 7> kStart = {"child_process", "system(", "subprocess", "popen",
                                                      "os.exec",       "pexpect", "spawn"};
  if (std::ranges::none_of(kStart, [&](auto word) { return text.find(word) != std::string_view::npos; })) return called;
  for (size_t at = text.find_first_of("'\""); at != std::string_view::npos; at = text.find_first_of("'\"", at + 1)) {
    const auto before = trim(text.substr(0, at));
    if (!before.ends_with('[') && !before.ends_with('(')) continue;
    const auto literal = text.substr(at + 1, std::min(text.find(text[at], at + 1), text.size()) - at - 1);
    for (auto& each : ShellReader(literal, functions, 1).read()) called.push_back(std::move(each));
  }
  return called;
}

std::vector<std::string> called_by_python(std::string_view text) {
  std::vector<std::string> called;
  const std::set<std::string> none;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '#') at = std::min(text.find('\n', at), text.size());
    if (c != '\'' && c != '"') continue;
    const bool is_long = text.size() - at >= 3 && text[at + 1] == c && text[at + 2] == c;
    const auto quote = text.substr(at, is_long ? 3 : 1);
    const size_t begin = at + quote.size();
    size_t end = begin;
    while (end < text.size() && !text.substr(end).starts_with(quote) && (is_long || text[end] != '\n'))
      end += text[end] == '\\' && end + 1 < text.size() ? 2 : 1;
    for (auto& each : ShellReader(text.substr(begin, std::min(end, text.size()) - begin), none, 1).read())
      called.push_back(std::move(each));
    at = std::min(end + quote.size(), text.size()) - 1;
  }
  return called;
}

bool may_be(std::string_view word, std::string_view text, std::string_view program) {
  if (program.find('/') == std::string_view::npos) word.remove_prefix(word.rfind('/') + 1);
  constexpr std::string_view kHome = "~/";
  if (word.starts_with(kHome)) return program.ends_with(word.substr(1));
  return may_become(word, text, program, 0);
}

}  // namespace tandem::envs
