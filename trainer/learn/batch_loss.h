// The loss of a whole batch, its derivative by every logprob, and the advantages it was taken with, for every algorithm
// that has a name (trainer/learn/algorithm.h): what `tandem loss` prints. Made of trainer/learn/sequence_loss.h, as a
// training step is.
//
// Formulas and their sources: docs/algorithms.md. Everything in double, sums from left to right. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "trainer/learn/algorithm.h"

namespace tandem::trainer {

// A matrix, row-major; a row is a sequence, padded on the right or the left. Empty where it was not given.
using Rows = std::vector<double>;

struct Batch {
  size_t rows = 0, length = 0;
  Rows logprobs;
  std::vector<uint8_t> mask;  // which tokens count
  Rows old_logprobs;      // the policy before the step; empty: rollout_logprobs, and without them logprobs themselves
  Rows rollout_logprobs;  // of the sampler
  Rows ref_logprobs, values;
  Rows advantages;              // empty: from rewards
  Rows rewards;                 // of a token; empty: advantages are given
  std::vector<int64_t> groups;  // of a row: which rows are samples of one prompt; for advantages of groups
};

struct BatchLoss {
  double loss = 0;
  Rows grad_logprobs;  // 0 where the mask is 0
  Rows advantages;     // the same
  std::map<std::string, double> metrics;
};

// kInvalid where something that the algorithm needs is missing, or a correction would count twice. Sizes must agree.
Result<BatchLoss> batch_loss(const Batch& batch, const Algorithm& algorithm);

}  // namespace tandem::trainer
