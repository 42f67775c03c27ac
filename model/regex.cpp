#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <string>

#include "model/regex_syntax.h"

namespace tandem::model {
namespace {

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
  const std::string adapted = TRY(pcre2_of_oniguruma(pattern));
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
