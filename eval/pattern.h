// A regular expression over text of a model, whose matching takes bounded time and memory.
//
// PCRE2's syntax, over bytes and not characters. Thread safety: `found_in` from any thread. Private to eval/.
#pragma once

#include <memory>
#include <string_view>

struct pcre2_real_code_8;

namespace tandem::eval {

class Pattern {
 public:
  // `pattern` is correct: a mistake in it is a bug of the caller, and ends the process.
  explicit Pattern(std::string_view pattern);

  // Whether it matches anywhere. False as well where that would take more than a few milliseconds.
  bool found_in(std::string_view text) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

}  // namespace tandem::eval
