#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <string>

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
  const std::string adapted = adapted_pattern(pattern);
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
