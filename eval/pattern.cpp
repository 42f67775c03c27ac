#define PCRE2_CODE_UNIT_WIDTH 8
#include "eval/pattern.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace tandem::eval {
namespace {

constexpr uint32_t kMostSteps = 1'000'000;  // of backtracking

struct FreeMatch {
  void operator()(pcre2_match_data_8* data) const { pcre2_match_data_free_8(data); }
  void operator()(pcre2_match_context_8* context) const { pcre2_match_context_free_8(context); }
};

}  // namespace

void Pattern::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free_8(code); }

Pattern::Pattern(std::string_view pattern) {
  int error = 0;
  PCRE2_SIZE place = 0;
  code_.reset(
      pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(pattern.data()), pattern.size(), 0, &error, &place, nullptr));
  if (!code_) {
    fmt::print(stderr, "pattern \"{}\": PCRE2 error {} at byte {}\n", pattern, error, place);
    std::abort();
  }
  pcre2_jit_compile_8(code_.get(), PCRE2_JIT_COMPLETE);  // where there is no JIT, the interpreter matches
}

bool Pattern::found_in(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data_8, FreeMatch> data(pcre2_match_data_create_8(1, nullptr));
  const std::unique_ptr<pcre2_match_context_8, FreeMatch> context(pcre2_match_context_create_8(nullptr));
  pcre2_set_match_limit_8(context.get(), kMostSteps);
  const auto match = [&](uint32_t options) {
    return pcre2_match_8(code_.get(), reinterpret_cast<PCRE2_SPTR8>(text.data()), text.size(), 0, options, data.get(),
                         context.get());
  };
  int outcome = match(0);
  if (outcome == PCRE2_ERROR_JIT_STACKLIMIT) outcome = match(PCRE2_NO_JIT);  // its frames are on the heap
  return outcome >= 0;
}

}  // namespace tandem::eval
