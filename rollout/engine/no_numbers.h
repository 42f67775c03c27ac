// Tells answers of a model that computed NaN from others.
#pragma once

#include <cmath>
#include <span>

#include "base/status.h"

namespace tandem::rollout {

// An error where log-probabilities are NaN, as they are once the weights are, or what is computed from them is beyond
// what its number format holds: the token beside them was drawn from nothing, and is no answer of the model.
inline Status check_are_numbers(std::span<const float> logprobs) {
  for (const float logprob : logprobs) {
    if (!std::isnan(logprob)) continue;
    return Status::corrupt("the model gives NaN where numbers are expected")
        .hint(
            "`tandem inspect MODEL --numbers` names the tensors with NaN or infinite numbers; where there are none, "
            "what "
            "is computed is too large: try --dtype float32");
  }
  return {};
}

}  // namespace tandem::rollout
