// A model that gives conversations a reward: the transformer, and a head over the state of the last token.
//
// Tokens go through the engine's kernels in chunks, over pages of keys and values of its own. A reward depends on its
// tokens and the weights alone, and has the bits that the trainer's forward pass gives (docs/numerics.md).
//
// Thread safety: none; the weights are shared.
#pragma once

#include <memory>
#include <span>

#include "kernels/stream.h"
#include "model/forward.h"
#include "model/reward_head.h"
#include "model/weights.h"

namespace tandem::model {

class RewardModel {
 public:
  // `weights` are packed for the kernels of `stream`. kInvalid where the head is of another width.
  static Result<RewardModel> create(std::shared_ptr<const Weights> weights, kernels::Stream stream, RewardHead head);

  const ModelConfig& config() const { return weights_->config(); }
  const RewardHead& head() const { return head_; }

  // Of the last of `tokens`. kInvalid where there are none, more than the model takes, or one that it has not; kCorrupt
  // where the reward is no number; kExhausted where there is no memory for keys and values.
  Result<double> reward(std::span<const int32_t> tokens);

 private:
  RewardModel(std::shared_ptr<const Weights> weights, kernels::Stream stream, RewardHead head)
      : weights_(std::move(weights)),
        stream_(std::move(stream)),
        head_(std::move(head)),
        forward_(weights_->config(), weights_->config().max_positions, weights_->format()) {}

  std::shared_ptr<const Weights> weights_;
  kernels::Stream stream_;
  RewardHead head_;
  Forward forward_;
  KvPool pool_;  // for the longest conversation so far
};

}  // namespace tandem::model
