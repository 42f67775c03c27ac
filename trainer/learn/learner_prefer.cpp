// A step on pairs of answers: the loss is of sums over whole answers, so a forward pass over the batch comes first.
#include <algorithm>

#include "trainer/learn/learner.h"

namespace tandem::trainer {

Result<std::vector<double>> Learner::sums_of_logprobs(std::span<const Sample> samples) {
  StepMetrics metrics;
  const auto outcomes = TRY(accumulate(
      samples,
      [&](size_t, const TokenLogprobs& at, std::vector<double>&, Outcome& outcome) {
        for (const double logprob : at.logprobs) outcome.loss += logprob;
      },
      metrics));
  std::vector<double> sums;
  for (const Outcome& outcome : outcomes) sums.push_back(outcome.loss);
  return sums;
}

Result<StepMetrics> Learner::prefer(std::span<const Sample> answers, std::span<const double> reference,
                                    const PreferenceLoss& loss) {
  const auto sums = TRY(sums_of_logprobs(answers));
  std::vector<double> tokens;
  for (const Sample& answer : answers) tokens.push_back(trained_tokens(std::span(&answer, 1)));
  if (std::ranges::find(tokens, 0.0) != tokens.end())
    return fail(Status::invalid("an answer of a pair has no token to learn from"));
  const PairLosses pairs = preference_loss(sums, reference, tokens, loss);
  StepMetrics metrics;
  TRY(accumulate(
      answers,
      [&](size_t answer, const TokenLogprobs&, std::vector<double>& gradients, Outcome&) {
        std::ranges::fill(gradients, pairs.gradients[answer]);
      },
      metrics));
  metrics.loss = pairs.loss;
  metrics.of_loss = {{"accuracy", pairs.accuracy},
                     {"margin", pairs.margin},
                     {"chosen_reward", pairs.chosen_reward},
                     {"rejected_reward", pairs.rejected_reward}};
  TRY(apply(metrics));
  return metrics;
}

}  // namespace tandem::trainer
