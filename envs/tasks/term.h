// One term of a grade. A value.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace tandem::envs {

// The value of a term, why it is not 1, and the share of it that holds where that is known.
struct Term {
  double value = 0;
  std::string why = {};
  std::optional<double> share = {};
  std::map<std::string, double> metrics = {};  // other numbers that the tests left, by their names
};

}  // namespace tandem::envs
