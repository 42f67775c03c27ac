// The loss of a token with its derivative, and what it weighs in a batch. Pure functions in double.
#pragma once

#include <span>
#include <vector>

#include "trainer/algorithm.h"

namespace tandem::trainer {

struct TokenLoss {
  double loss = 0;
  double slope = 0;  // dloss / dlogprob
  double ratio = 1;
  bool clipped = false;
};
// max(-A r, -A clip(r, 1 - low, 1 + high)) with r = e^(logprob - old_logprob), the exponent held within +-20; for A < 0
// at most -A dual_clip.
TokenLoss token_loss(double logprob, double old_logprob, double advantage, const Algorithm& algorithm);

// What each token's loss is multiplied with: `lengths` are the counted tokens of every sequence of the global batch.
std::vector<double> sequence_weights(std::span<const int> lengths, const Algorithm& algorithm);

}  // namespace tandem::trainer
