// The regular expressions of tokenizer.json, with the meaning that Oniguruma (which HF tokenizers uses) gives them.
//
// Backed by PCRE2 with its JIT; model/regex_syntax.h says how. Thread safety: const methods from any thread; a
// RegexScratch belongs to one thread.
#pragma once

#include <memory>
#include <string_view>

#include "base/status.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

namespace tandem::model {

// Memory for matching; made once for many matches.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  pcre2_real_match_data_8* data_;
  pcre2_real_match_context_8* limits_;
};

class Regex {
 public:
  static Result<Regex> compile(std::string_view pattern);

  struct Match {
    bool found = false;
    size_t begin = 0;
    size_t end = 0;
  };
  // The first match at or after `from`. `text` must be valid UTF-8. kExhausted where the expression backtracks without
  // end.
  Result<Match> find(std::string_view text, size_t from, RegexScratch& scratch) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  explicit Regex(pcre2_real_code_8* code) : code_(code) {}
  std::unique_ptr<pcre2_real_code_8, Free> code_;
  bool jit_ = false;
};

}  // namespace tandem::model
