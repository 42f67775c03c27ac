// Log-probabilities of given tokens, by the engine's code and by the trainer's; one answer, to the bit.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/stream.h"
#include "model/executor.h"
#include "model/weights.h"
#include "trainer/learn/tape.h"

namespace tandem::cli {

struct Scores {
  std::vector<float> logprobs;  // of tokens 1..n
  std::vector<int32_t> argmax;  // after every token
};

// Holds a packed model. Thread safety: none.
class Scorer {
 public:
  static Result<std::unique_ptr<Scorer>> create(model::Weights weights, const model::Place& place);

  const model::Weights& weights() const { return *weights_; }

  // As the engine samples: paged keys and values, prefilled in chunks. `tokens`: 1 to max_positions ids of the model.
  Result<Scores> by_engine(std::span<const int32_t> tokens);
  // As the trainer's forward pass: a prefix tree with one branch. kUnfit for what a device does not train.
  Result<Scores> by_trainer(std::span<const int32_t> tokens);

 private:
  Scorer(std::shared_ptr<const model::Weights> weights, kernels::Stream stream, model::Place place);
  // With the first `pages` pages cleared.
  Result<model::Executor*> executor(int pages);

  std::shared_ptr<const model::Weights> weights_;
  kernels::Stream stream_;
  const model::Place place_;
  std::unique_ptr<model::Executor> executor_;  // with pages for the longest text so far
  std::unique_ptr<trainer::Tape> tape_;        // made when it is first asked for
};

}  // namespace tandem::cli
