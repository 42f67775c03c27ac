// A loss that the user brings: a function of a whole batch, with its gradient by logprob.
//
// Thread safety: one call at a time.
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "trainer/learn/batch.h"

namespace tandem::trainer {

struct FunctionInput {
  const LossBatch& batch;  // with old and rollout logprobs; `rewards` may be missing
  const Rows& advantages;  // [rows, length]
  // Of a row: what the sum of its token losses is multiplied with, where the function returns a loss a token.
  const std::vector<double>& weights;
  int64_t step = 0;  // of the run, from 1
};

struct FunctionOutput {
  double loss = 0;
  Rows grad_logprobs;  // finite, 0 where the mask is 0
  std::map<std::string, double> metrics;
};

class LossFunction {
 public:
  virtual ~LossFunction() = default;
  // A function of its input alone. kInvalid in the user's terms where it fails or returns what is no loss.
  virtual Result<FunctionOutput> compute(const FunctionInput& input) const = 0;
};

}  // namespace tandem::trainer
