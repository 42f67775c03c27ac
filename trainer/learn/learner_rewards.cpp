// A reward model's steps: a head over the state of each answer's last token, and where it is asked for the model below.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/learn/learner.h"

namespace tandem::trainer {

namespace {

double norm_of_head(std::span<const double> gradient) {
  double squares = 0;
  for (const double g : gradient) squares += g * g;
  return std::sqrt(squares);
}

}  // namespace

Status Learner::keep_reward_head(double learning_rate, const std::optional<model::RewardHead>& start,
                                 std::map<std::string, std::string> notes) {
  if (critic_) return Status::internal("a model has one head of values");
  const auto width = static_cast<size_t>(weights_->config().width);
  if (start && start->weight.size() != width + 1) {
    return Status::invalid(
        fmt::format("a reward head of width {} for a model of width {}", start->weight.size() - 1, width));
  }
  critic_ = TRY(ValueHead::create(weights_->config().width, learning_rate, HeadKind::kReward));
  if (start) critic_->set(start->weight);
  reward_notes_ = std::move(notes);
  return {};
}

Result<std::vector<double>> Learner::rewards(std::span<const Sample> samples) {
  if (!gives_rewards()) return fail(Status::internal("the model has no head of rewards"));
  for (const Sample& sample : samples) {
    if (trained_tokens(std::span(&sample, 1)) == 0)
      return fail(Status::invalid("a sample has no token that its reward is read at"));
  }
  StepMetrics metrics;
  const auto outcomes = TRY(accumulate(
      samples,
      [&](size_t, const TokenLogprobs& at, std::vector<double>&, Outcome& outcome) { outcome.loss = at.values.back(); },
      metrics));
  std::vector<double> rewards;
  for (const Outcome& outcome : outcomes) rewards.push_back(outcome.loss);
  return rewards;
}

Result<StepMetrics> Learner::learn_rewards(std::span<const Sample> answers, std::span<const double> margins,
                                           const RewardLoss& loss) {
  const auto rewards = TRY(this->rewards(answers));
  const RewardLosses pairs = reward_loss(rewards, margins, loss);
  size_t length = 1;
  for (const Sample& answer : answers)
    length = std::max(length, static_cast<size_t>(trained_tokens(std::span(&answer, 1))));
  // Rows of a matrix, padded on the right: the gradient is of the last trained token.
  ValuePass pass{.gradients = {}, .length = length, .trunk = loss.trunk, .sum = {}};
  std::vector<double> gradients(answers.size() * length, 0);
  for (size_t i = 0; i < answers.size(); ++i)
    gradients[i * length + static_cast<size_t>(trained_tokens(answers.subspan(i, 1))) - 1] = pairs.gradients[i];
  pass.gradients = gradients;
  value_pass_ = std::move(pass);
  StepMetrics metrics;
  const auto accumulated = accumulate(
      answers, [](size_t, const TokenLogprobs&, std::vector<double>&, Outcome&) {}, metrics);
  const auto value_pass = std::exchange(value_pass_, std::nullopt);
  TRY(accumulated ? Status() : accumulated.error());
  metrics.loss = pairs.loss;
  const double norm = norm_of_head(value_pass->sum);
  if (!std::isfinite(norm) || !std::isfinite(pairs.loss)) {
    forget_gradients();
    return fail(Status::corrupt(
        fmt::format("the gradient of step {} is not finite; the weights were left as they are", steps_ + 1)));
  }
  metrics.of_loss = {{"accuracy", pairs.accuracy},
                     {"margin", pairs.margin},
                     {"reward", pairs.mean_reward()},
                     {"chosen_reward", pairs.chosen_reward},
                     {"rejected_reward", pairs.rejected_reward},
                     {"head_grad_norm", norm}};
  if (loss.trunk) {
    TRY(apply(metrics));
  } else {
    metrics.grad_norm = norm;
    metrics.learning_rate = settings_.learning_rate.at(steps_ + 1);
    ++steps_;
    ++updates_;
  }
  // Steps are counted already; the schedule is the model's, at a peak of the head's own.
  LearningRate share = settings_.learning_rate;
  share.peak = 1;
  if (metrics.skipped_spikes == 0) TRY(critic_->step(stream_, value_pass->sum, updates_, share.at(steps_)));
  return metrics;
}

}  // namespace tandem::trainer
