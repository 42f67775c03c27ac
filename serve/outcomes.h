// Statistics of a model version's answers, to compare two versions. Sums, so that two readings can be subtracted.
//
// Thread safety: a value.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/json.h"

namespace tandem::serve {

// Natural logarithms of seconds: times are compared by their ratio.
struct LogSeconds {
  uint64_t count = 0;
  double sum = 0, squares = 0;
  void observe(double seconds) {
    // A clock's tick at least, so that no time is without a logarithm.
    const double log = std::log(std::max(seconds, 1e-6));
    ++count;
    sum += log;
    squares += log * log;
  }
};

struct Outcomes {
  // Requests that were answered whole, and those that ended in an error of the server. A client that went away, and
  // one that was told to come again, are neither.
  uint64_t answers = 0, errors = 0;
  LogSeconds first_token;               // of each answer
  LogSeconds per_token;                 // between the first and the last, of answers that are long enough
  uint64_t accepted = 0, rejected = 0;  // POST /feedback

  // A short answer says little of what a token takes, and would count as much as a long one: a tick of the clock, or
  // the prompt of somebody else in one of its passes, is most of its time.
  static constexpr size_t kFewestTokens = 16;
  // `further`: tokens behind the first, in so many seconds.
  void observe_tokens(double seconds, size_t further) {
    if (further >= kFewestTokens) per_token.observe(seconds / static_cast<double>(further));
  }
};

inline Json to_json(const LogSeconds& seconds) {
  return {{"count", seconds.count}, {"sum", seconds.sum}, {"squares", seconds.squares}};
}
inline Json to_json(const Outcomes& outcomes) {
  return {{"answers", outcomes.answers},
          {"errors", outcomes.errors},
          {"log_first_token_seconds", to_json(outcomes.first_token)},
          {"log_seconds_per_token", to_json(outcomes.per_token)},
          {"accepted", outcomes.accepted},
          {"rejected", outcomes.rejected}};
}

}  // namespace tandem::serve
