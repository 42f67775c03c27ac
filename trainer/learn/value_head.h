// A linear function of the hidden state that the model's head reads, v = w . h + b: the critic of PPO, of the state
// before a token, or the head of a reward model, of the state of the last one. It begins at 0 or where it is set to,
// and learns by AdamW at a rate of its own.
//
// It is whole on every rank, and each moves it by the same gradient, in double until the step. Thread safety: none.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "kernels/stream.h"
#include "trainer/learn/batch.h"
#include "trainer/learn/buffers.h"
#include "trainer/learn/optimizer.h"

namespace tandem::trainer {

enum class HeadKind : uint8_t { kCritic, kReward };

class ValueHead {
 public:
  static Result<ValueHead> create(int width, double learning_rate, HeadKind kind = HeadKind::kCritic);

  HeadKind kind() const { return kind_; }
  // w, then b.
  std::span<const float> numbers() const;
  void set(std::span<const float> numbers);

  // Numbers of w and b together.
  size_t elements() const { return width_ + 1; }
  // `state` has the width of the model.
  double value(std::span<const float> state) const;
  // Adds dLoss/dw and dLoss/db of a value to `sum`, [elements].
  void add_gradient(std::span<const float> state, double gradient, std::span<double> sum) const;
  // Adds dLoss/dstate to `sum`, [width].
  void add_to_state(double gradient, std::span<float> sum) const;
  // `number` counts from 1. The learning rate is multiplied by `schedule`.
  Status step(kernels::Stream& stream, std::span<const double> gradient, int64_t number, double schedule = 1);

  // The slices that a checkpoint stores, fp32: value_head, value_first_moments, value_second_moments; of a reward
  // model's reward_head and so on.
  std::vector<Slice> state();
  // Of a critic: value_head.safetensors in the folder of a model: weight [1, width] and bias [1], fp32.
  Status write(const fs::path& model) const;

 private:
  ValueHead(size_t width, double learning_rate, HeadKind kind, Optimizer optimizer);

  HeadKind kind_;
  size_t width_;
  double learning_rate_;
  Optimizer optimizer_;
  Buffers buffers_;
};

// The critic's mean squared error over the tokens where `mask` is not 0, and its derivative by each value, times
// `coefficient`. All have one length.
struct ValueLoss {
  double loss = 0;
  double explained_variance = 0;  // 1: all of the returns' variance is foreseen; 0: no more than by their mean
  Rows gradients;
};
ValueLoss value_loss(std::span<const uint8_t> mask, const Rows& values, const Rows& returns, double coefficient);

}  // namespace tandem::trainer
