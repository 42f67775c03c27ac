// Log-probabilities of given tokens, by the engine's code and by the trainer's; one answer, to the bit.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/stream.h"
#include "model/forward.h"
#include "trainer/learn/tape.h"

namespace tandem::cli {

struct Scores {
  std::vector<float> logprobs;  // of tokens 1..n
  std::vector<int32_t> argmax;  // after every token
};

// Holds a packed model. Thread safety: none.
class Scorer {
 public:
  static Result<std::unique_ptr<Scorer>> create(model::Weights weights, int threads);

  const model::Weights& weights() const { return weights_; }

  // As the engine samples: paged keys and values, prefilled in chunks. `tokens`: 1 to max_positions ids of the model.
  Result<Scores> by_engine(std::span<const int32_t> tokens);
  // As the trainer's forward pass: a prefix tree with one branch.
  Result<Scores> by_trainer(std::span<const int32_t> tokens);

 private:
  Scorer(model::Weights weights, kernels::Stream stream);

  model::Weights weights_;
  kernels::Stream stream_;
  model::Forward forward_;
  trainer::Tape tape_;
};

}  // namespace tandem::cli
