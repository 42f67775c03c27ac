// Numbers of JSON within bounds, as automata over the text that writes them.
//
// The form: integers are written without fraction and exponent, with at most kMaxDigits digits. Other numbers without
// bounds take any fraction, and exponents up to +99 and -999 behind at most 200 digits, so that each is within what a
// double holds. Numbers with bounds take no exponent, and a fraction only while there are at most 15 digits in all, so
// that no two of them are the same double; so do multiples. Bounds are compared exactly, digit by digit.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "model/constraint/dfa.h"

namespace tandem::model::constraint {

inline constexpr int kMaxDigits = 300;

struct Bound {
  std::string digits;    // before the point, without leading zeros but for "0" itself
  std::string fraction;  // behind it, without trailing zeros
  bool negative = false;
  bool exclusive = false;
  friend bool operator==(const Bound&, const Bound&) = default;

  // kInvalid where the number has more digits than numbers here have.
  static Result<Bound> of(const Json& number, bool exclusive);
  // By value alone: below, at or above 0.
  int compare(const Bound& other) const;
};

struct NumberRules {
  bool integer = false;
  std::optional<Bound> least, most;
  uint32_t multiple_of = 0;  // of integers; 0: any
  void at_least(const Bound& bound);
  void at_most(const Bound& bound);
};

Result<Dfa> compile_number(const NumberRules& rules);

}  // namespace tandem::model::constraint
