#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <string>
#include <vector>

#include "model/unicode16.h"

namespace tandem::model {
namespace {

constexpr std::string_view kSpaces =
    R"(\x09-\x0d\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// What PCRE2 lacks of a category like "L" or "Nd"; empty where nothing is known to be missing.
std::string_view new_characters(std::string_view category) {
  for (const NewCharacters& entry : kNewCharacters) {
    if (entry.category == category) return entry.ranges;
  }
  return {};
}

// What Oniguruma takes for \w and \d.
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\xb2\xb3\xb9\xbc-\xbe\x{24b6}-\x{24e9}\x{1f130}-\x{1f149})"
    R"(\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
constexpr std::string_view kDigits = R"(\p{Nd})";

// The characters that a small letter behind a backslash stands for; empty for others.
std::string_view characters_of(char escaped) {
  switch (escaped) {
    case 's':
      return kSpaces;
    case 'w':
      return kWord;
    case 'd':
      return kDigits;
    default:
      return {};
  }
}

// Oniguruma's syntax where PCRE2 has another: intersections and classes within classes, \h for hexadecimal digits,
// {,n}, and the option m, which lets . match line ends.
class Syntax {
 public:
  explicit Syntax(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> translated() {
    std::string out;
    while (at_ < pattern_.size()) {
      if (pattern_[at_] == '[')
        out += TRY(class_at(0)).whole();
      else
        out += outside();
    }
    return out;
  }

 private:
  static constexpr int kMostDeep = 16;

  // A class as what PCRE2 has: characters in brackets, or a choice of groups that match one character each.
  struct Class {
    std::string plain;                // what stands in the brackets, or nothing
    std::vector<std::string> others;  // groups
    std::vector<std::string> within;  // of which all match too
    bool negated = false;

    bool is_plain() const { return others.empty() && within.empty(); }
    std::string positive() const {
      std::string any = plain.empty() ? "" : "[" + plain + "]";
      for (const auto& other : others) any += (any.empty() ? "" : "|") + other;
      if (others.size() + (plain.empty() ? 0 : 1) > 1) any = "(?:" + any + ")";
      std::string ahead;
      for (const auto& other : within) ahead += "(?=" + other + ")";
      return ahead.empty() ? any : "(?:" + ahead + any + ")";
    }
    std::string whole() const {
      if (is_plain()) return negated ? "[^" + plain + "]" : "[" + plain + "]";
      return negated ? "(?:(?!" + positive() + ")(?s:.))" : positive();
    }
  };

  std::string outside() {
    const auto rest = pattern_.substr(at_);
    if (rest[0] == '\\' && rest.size() > 1) {
      at_ += 2;
      if (rest[1] == 'h') return "[0-9a-fA-F]";
      if (rest[1] == 'H') return "[^0-9a-fA-F]";
      return std::string(rest.substr(0, 2));
    }
    if (rest.starts_with("{,")) {
      const size_t end = rest.find_first_not_of("0123456789", 2);
      if (end != std::string_view::npos && end > 2 && rest[end] == '}') {
        ++at_;
        return "{0";
      }
    }
    if (rest.starts_with("(?") && rest.size() > 2) {
      const size_t end = rest.find_first_not_of("imx-", 2);
      if (end != std::string_view::npos && end > 2 && (rest[end] == ':' || rest[end] == ')')) {
        std::string options(rest.substr(0, end));
        std::replace(options.begin(), options.end(), 'm', 's');
        at_ += end;
        return options;
      }
    }
    ++at_;
    return std::string(1, rest[0]);
  }

  Result<Class> class_at(int depth) {
    const auto wrong = [&](const char* what) {
      return fail(Status::invalid(fmt::format("regular expression \"{}\": {}", pattern_, what)));
    };
    if (depth > kMostDeep) return wrong("classes within each other are nested too deep");
    ++at_;
    Class made;
    if (at_ < pattern_.size() && pattern_[at_] == '^') {
      made.negated = true;
      ++at_;
    }
    std::vector<Class> sides(1);
    for (bool first = true;; first = false) {
      if (at_ >= pattern_.size()) return wrong("a [ without its ]");
      const auto rest = pattern_.substr(at_);
      Class& side = sides.back();
      if (rest[0] == ']' && !first) break;
      if (rest.starts_with("&&")) {
        sides.emplace_back();
        at_ += 2;
      } else if (rest.starts_with("[:") && rest.find(":]") != std::string_view::npos) {
        const size_t end = rest.find(":]") + 2;
        side.plain += rest.substr(0, end);
        at_ += end;
      } else if (rest[0] == '[') {
        const Class inner = TRY(class_at(depth + 1));
        if (inner.is_plain() && !inner.negated)
          side.plain += inner.plain;
        else
          side.others.push_back(inner.whole());
      } else if (rest[0] == '\\' && rest.size() > 1) {
        if (rest[1] == 'h')
          side.plain += "0-9a-fA-F";
        else if (rest[1] == 'H')
          return wrong("\\H in a class is not supported");
        else
          side.plain += rest.substr(0, 2);
        at_ += 2;
      } else {
        side.plain += rest[0] == ']' ? "\\]" : std::string(1, rest[0]);
        ++at_;
      }
    }
    ++at_;
    for (const Class& side : sides)
      if (side.plain.empty() && side.others.empty()) return wrong("an empty part of a class is not supported");
    const bool negated = made.negated;
    made = sides[0];
    made.negated = negated;
    for (size_t i = 1; i < sides.size(); ++i) made.within.push_back(sides[i].positive());
    return made;
  }

  std::string_view pattern_;
  size_t at_ = 0;
};

// The pattern with \s, \w and \d written out, and categories completed. \S, \W, \D and \P within a class cannot be,
// and stay PCRE2's.
std::string adapted_pattern(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      const bool names = (escaped == 'p' || escaped == 'P') && i + 1 < pattern.size() && pattern[i + 1] == '{';
      const size_t close = names ? pattern.find('}', i) : std::string_view::npos;
      const auto small = characters_of(escaped), capital = characters_of(static_cast<char>(escaped | ' '));
      if (!small.empty()) {
        const std::string characters = adapted_pattern(fmt::format("[{}]", small));
        out += in_class ? characters.substr(1, characters.size() - 2) : characters;
      } else if (!capital.empty() && !in_class) {
        out += adapted_pattern(fmt::format("[^{}]", capital));
      } else if (close != std::string_view::npos) {
        const auto category = pattern.substr(i + 2, close - i - 2);
        const auto missing = new_characters(category);
        if (missing.empty() || (escaped == 'P' && in_class)) {
          out += fmt::format("\\{}{{{}}}", escaped, category);
        } else if (escaped == 'P') {
          out += fmt::format("[^\\p{{{}}}{}]", category, missing);
        } else {
          out += in_class ? fmt::format("\\p{{{}}}{}", category, missing)
                          : fmt::format("[\\p{{{}}}{}]", category, missing);
        }
        i = close;
      } else {
        out += {'\\', escaped};
      }
      continue;
    }
    if (pattern[i] == '[') in_class = true;
    if (pattern[i] == ']') in_class = false;
    out += pattern[i];
  }
  return out;
}

constexpr uint32_t kMatchLimit = 50'000'000;
constexpr uint32_t kHeapLimitKiB = 64 << 10;

}  // namespace

RegexScratch::RegexScratch()
    : data_(pcre2_match_data_create_8(1, nullptr)), limits_(pcre2_match_context_create_8(nullptr)) {
  pcre2_set_match_limit_8(limits_, kMatchLimit);
  pcre2_set_heap_limit_8(limits_, kHeapLimitKiB);
}

RegexScratch::~RegexScratch() {
  pcre2_match_data_free_8(data_);
  pcre2_match_context_free_8(limits_);
}

void Regex::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free_8(code); }

Result<Regex> Regex::compile(std::string_view pattern) {
  constexpr size_t kLongest = 1 << 16;
  if (pattern.size() > kLongest) return fail(Status::invalid("the regular expression is longer than 64 KiB"));
  const std::string adapted = adapted_pattern(TRY(Syntax(pattern).translated()));
  int error = 0;
  PCRE2_SIZE place = 0;
  Regex regex(pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(adapted.data()), adapted.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &place,
                              nullptr));
  if (!regex.code_) {
    unsigned char message[256];
    pcre2_get_error_message_8(error, message, sizeof message);
    return fail(
        Status::invalid(fmt::format("regular expression \"{}\": {}", pattern, reinterpret_cast<const char*>(message))));
  }
  regex.jit_ = pcre2_jit_compile_8(regex.code_.get(), PCRE2_JIT_COMPLETE) == 0;
  return regex;
}

Result<Regex::Match> Regex::find(std::string_view text, size_t from, RegexScratch& scratch) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR8>(text.data());
  int outcome = PCRE2_ERROR_JIT_STACKLIMIT;
  if (jit_) outcome = pcre2_jit_match_8(code_.get(), subject, text.size(), from, 0, scratch.data_, scratch.limits_);
  if (outcome == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its frames on the heap
    outcome = pcre2_match_8(code_.get(), subject, text.size(), from, PCRE2_NO_JIT | PCRE2_NO_UTF_CHECK, scratch.data_,
                            scratch.limits_);
  }
  if (outcome == PCRE2_ERROR_NOMATCH) return Match{};
  if (outcome < 0) {
    unsigned char message[256];
    pcre2_get_error_message_8(outcome, message, sizeof message);
    return fail(Status::exhausted(fmt::format("regular expression of the tokenizer at byte {}: {}", from,
                                              reinterpret_cast<const char*>(message))));
  }
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer_8(scratch.data_);
  return Match{true, bounds[0], bounds[1]};
}

}  // namespace tandem::model
