// One term of a grade. A value.
#pragma once

#include <optional>
#include <string>

namespace tandem::envs {

// The value of a term, why it is not 1, and the share of it that holds where that is known.
struct Term {
  double value = 0;
  std::string why = {};
  std::optional<double> share = {};
};

}  // namespace tandem::envs
