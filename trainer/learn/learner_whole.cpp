// A step whose loss is of the whole batch: baselines over all samples, terms in the reward, losses of the user's own.
//
// All ranks have the logprobs of all samples after the survey and compute the same loss from them, so its gradients
// have the same bits on each, whatever the function adds up.
#include <fmt/format.h>

#include <algorithm>

#include "trainer/learn/batch_loss.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {

namespace {

size_t count_trained(const Sample& sample) {
  return sample.trained.empty() ? 0
                                : static_cast<size_t>(std::count(sample.trained.begin() + 1, sample.trained.end(), 1));
}

// What is known of the samples without the model.
LossBatch rows_of(std::span<const Sample> samples) {
  LossBatch batch{.rows = samples.size(), .length = 1};
  for (const Sample& sample : samples) batch.length = std::max(batch.length, count_trained(sample));
  const size_t count = batch.rows * batch.length;
  batch.mask.assign(count, 0);
  batch.rollout_logprobs.assign(count, 0);
  batch.rewards.assign(count, 0);
  batch.turns.assign(count, -1);
  for (size_t row = 0; row < samples.size(); ++row) {
    const Sample& sample = samples[row];
    size_t at = row * batch.length;
    int64_t turn = -1;
    for (size_t i = 1; i < sample.tokens.size(); ++i) {
      if (!sample.trained[i]) continue;
      if (!sample.trained[i - 1] || turn < 0) ++turn;
      batch.mask[at] = 1;
      batch.rollout_logprobs[at] = sample.logprobs[i];
      batch.turns[at] = turn;
      ++at;
    }
    if (at > row * batch.length) batch.rewards[at - 1] = sample.advantage;
    // Groups that are none have numbers of their own.
    batch.groups.push_back(sample.group ? static_cast<int64_t>(*sample.group) : -1 - static_cast<int64_t>(row));
  }
  return batch;
}

}  // namespace

Result<LossBatch> Learner::survey(std::span<const Sample> samples) {
  LossBatch batch = rows_of(samples);
  batch.logprobs.assign(batch.mask.size(), 0);
  if (reference_) batch.ref_logprobs.assign(batch.mask.size(), 0);
  StepMetrics unused;
  TRY(accumulate(
      samples,
      [&](size_t sample, const TokenLogprobs& at, std::vector<double>&, Outcome&) {
        const auto begin = static_cast<ptrdiff_t>(sample * batch.length);
        std::ranges::copy(at.logprobs, batch.logprobs.begin() + begin);
        std::ranges::copy(at.ref_logprobs, batch.ref_logprobs.begin() + begin);
      },
      unused));
  if (ranks_.count() == 1) return batch;
  std::vector<int> owners;
  for (const int owner : owners_of(samples)) owners.insert(owners.end(), batch.length, owner);
  TRY(ranks_.exchange(std::span(batch.logprobs), owners));
  if (reference_) TRY(ranks_.exchange(std::span(batch.ref_logprobs), owners));
  return batch;
}

Result<StepMetrics> Learner::reinforce_whole(std::span<const Sample> samples, const Algorithm& algorithm,
                                             uint64_t version) {
  LossBatch batch = TRY(survey(samples));
  // A batch has one step: the policy before it is the current one. Built-in losses take their ratios against the
  // sampler, as in reinforce(); a function is given both.
  if (algorithm.policy == Policy::kTorch || algorithm.correction.kind != Correction::Kind::kNone)
    batch.old_logprobs = batch.logprobs;
  auto loss = batch_loss(batch, algorithm, function_.get(), static_cast<int64_t>(version) + 1);
  TRY(ranks_.agree(loss ? Status() : loss.error()));
  StepMetrics metrics;
  TRY(accumulate(
      samples,
      [&](size_t index, const TokenLogprobs& at, std::vector<double>& gradients, Outcome& outcome) {
        compare(samples[index], at, version, outcome);
        std::copy_n(loss->grad_logprobs.begin() + static_cast<ptrdiff_t>(index * batch.length), gradients.size(),
                    gradients.begin());
      },
      metrics));
  metrics.loss = loss->loss;
  take_means(loss->metrics, metrics);
  metrics.of_function = std::move(loss->function_metrics);
  return finish(samples, version, std::move(metrics));
}

}  // namespace tandem::trainer
