#include "envs/tasks/called_programs.h"

#include <algorithm>
#include <array>
#include <cctype>

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
  ShellReader(std::string_view text, int depth) : text_(text), depth_(depth) {}

  std::vector<std::string> read() {
    while (at_ < text_.size()) step();
    return std::move(called_);
  }

 private:
  void begin_command() {
    at_command_ = true;
    behind_starter_ = 0;
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
    } else if (c == '\n' || c == ';' || c == '|' || c == '&' || c == '(' || c == ')' || c == '`') {
      ++at_;
      begin_command();
    } else if (c == '<' || c == '>') {
      while (at_ < text_.size() && (text_[at_] == '<' || text_[at_] == '>' || text_[at_] == '&')) ++at_;
      while (at_ < text_.size() && text_[at_] == ' ') ++at_;
      if (at_ < text_.size() && text_[at_] != '(') (void)word();  // a file, no argument
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

  void add_all(std::string_view text) {
    if (depth_ == kDeepest) return;
    for (auto& each : ShellReader(text, depth_ + 1).read()) called_.push_back(std::move(each));
  }

  void take(std::string word) {
    if (word.empty()) return;
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
        behind_starter_ = is_one_of(kStarters, std::string_view(word).substr(word.rfind('/') + 1)) ? kBehindStarter : 0;
        at_command_ = false;
        called_.push_back(word);
      }
    } else if (behind_starter_ > 0 && !is_option && !is_assignment(word)) {
      --behind_starter_;
      called_.push_back(word);
    }
    last_ = std::move(word);
  }

  // Words that are no options: a time, a file of a lock, then the program.
  static constexpr int kBehindStarter = 3;
  static constexpr int kDeepest = 8;  // commands within commands

  const std::string_view text_;
  const int depth_;
  size_t at_ = 0;
  bool at_command_ = true;
  int behind_starter_ = 0;
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

std::vector<std::string> called_by_shell(std::string_view text) { return ShellReader(text, 0).read(); }

std::vector<std::string> called_by_python(std::string_view text) {
  constexpr std::array<std::string_view, 8> kStart = {"child_process", "system(", "subprocess", "os.system",
                                                      "popen",         "os.exec", "pexpect",    "spawn"};
  if (std::ranges::none_of(kStart, [&](auto word) { return text.find(word) != std::string_view::npos; })) return {};
  std::vector<std::string> called;
  for (size_t at = text.find_first_of("'\""); at != std::string_view::npos; at = text.find_first_of("'\"", at + 1)) {
    auto before = text.substr(0, at);
    while (!before.empty() && std::string_view("frbFRB").find(before.back()) != std::string_view::npos)
      before.remove_suffix(1);
    before = trim(before);
    if (!before.ends_with('[') && !before.ends_with('(')) continue;
    const auto literal = text.substr(at + 1, std::min(text.find(text[at], at + 1), text.size()) - at - 1);
    for (auto& each : called_by_shell(literal)) called.push_back(std::move(each));
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
