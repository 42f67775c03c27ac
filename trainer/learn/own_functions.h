// Interfaces of custom functions over a whole batch: the loss, with its gradient by logprob, and the advantages.
//
// Thread safety: one call at a time.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "trainer/learn/batch.h"

namespace tandem::trainer {

struct FunctionInput {
  const LossBatch& batch;  // with old and rollout logprobs, groups and turns; `rewards` may be missing
  const Rows& advantages;  // [rows, length]
  // Per row, the factor of the sum of its token losses, for functions that return a loss a token.
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

struct AdvantageOutput {
  Rows advantages;  // [rows, length]; finite, 0 where the mask is 0
  std::map<std::string, double> metrics;
};

class AdvantageFunction {
 public:
  virtual ~AdvantageFunction() = default;
  // A function of its input alone, with old and rollout logprobs, groups, turns and rewards. kInvalid in the user's
  // terms where it fails or returns what are no advantages.
  virtual Result<AdvantageOutput> compute(const LossBatch& batch, int64_t step) const = 0;
};

struct OwnFunctions {
  std::shared_ptr<const LossFunction> loss;             // null: the loss is a built-in one
  std::shared_ptr<const AdvantageFunction> advantages;  // the same
};

}  // namespace tandem::trainer
