// Detects that a model computed NaN.
#pragma once

#include <cmath>
#include <span>

#include "base/status.h"

namespace tandem::rollout {

// Returns an error where a log-probability is NaN: weights were NaN, or an intermediate value overflowed. The token was
// then not sampled from a distribution.
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
