// A step whose loss is of the whole batch: baselines over all samples, terms in the reward, losses of the user's own.
//
// All ranks have the logprobs of all samples after the survey and compute the same loss from them, so its gradients
// have the same bits on each, whatever the function adds up.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/learn/anchors.h"
#include "trainer/learn/batch_loss.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {

namespace {

size_t count_trained(const Sample& sample) {
  return sample.trained.empty() ? 0
                                : static_cast<size_t>(std::count(sample.trained.begin() + 1, sample.trained.end(), 1));
}

constexpr size_t kNoReward = SIZE_MAX;

bool is_end_of_segment(const Sample& sample, size_t token) {
  return std::ranges::binary_search(sample.later_segments, static_cast<uint32_t>(token + 1));
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
    std::vector<size_t> rewarded;  // of a turn: which of the turn rewards it has; a summary has none
    size_t summaries = 0;
    for (size_t i = 1; i < sample.tokens.size(); ++i) {
      if (!sample.trained[i]) continue;
      if (!sample.trained[i - 1] || turn < 0) rewarded.push_back(static_cast<size_t>(++turn) - summaries);
      if (is_end_of_segment(sample, i)) {
        rewarded.back() = kNoReward;
        ++summaries;
      }
      batch.mask[at] = 1;
      batch.rollout_logprobs[at] = sample.logprobs[i];
      batch.turns[at] = turn;
      ++at;
    }
    if (at > row * batch.length) {
      batch.rewards[at - 1] = sample.advantage;
      // A turn without a trained token, such as one that is cut off at once, leaves its part with the last token.
      for (size_t i = row * batch.length; i < at; ++i) {
        const size_t of = rewarded[static_cast<size_t>(batch.turns[i])];
        const bool is_last = i + 1 == at || batch.turns[i + 1] != batch.turns[i];
        if (!is_last || of >= sample.turn_rewards.size()) continue;
        batch.rewards[i] += sample.turn_rewards[of];
        batch.rewards[at - 1] -= sample.turn_rewards[of];
      }
    }
    // Groups that are none have numbers of their own.
    batch.groups.push_back(sample.group ? static_cast<int64_t>(*sample.group) : -1 - static_cast<int64_t>(row));
  }
  for (size_t row = 0; row < samples.size(); ++row) {
    for (const auto& [name, value] : samples[row].metrics)
      batch.metrics.try_emplace(name, batch.rows, std::nan("")).first->second[row] = value;
  }
  batch.trunks = trunks_of(samples);
  return batch;
}

}  // namespace

Result<LossBatch> Learner::survey(std::span<const Sample> samples, uint64_t version, StepMetrics& metrics,
                                  Asked asked) {
  LossBatch batch = rows_of(samples);
  const bool is_told = std::ranges::any_of(samples, [](const Sample& s) { return !s.teacher_logprobs.empty(); });
  const bool is_taught = (teacher_ || is_told) && asked == Asked::kTeacher;
  batch.logprobs.assign(batch.mask.size(), 0);
  const bool refers = reference_ && asked != Asked::kPolicyAlone;
  if (refers) batch.ref_logprobs.assign(batch.mask.size(), 0);
  if (critic_) batch.values.assign(batch.mask.size(), 0);
  if (is_taught) batch.teacher_logprobs.assign(batch.mask.size(), 0);
  TRY(accumulate(
      samples,
      [&](size_t sample, const TokenLogprobs& at, std::vector<double>&, Outcome& outcome) {
        compare(samples[sample], at, version, outcome);
        const auto begin = static_cast<ptrdiff_t>(sample * batch.length);
        std::ranges::copy(at.logprobs, batch.logprobs.begin() + begin);
        std::ranges::copy(at.ref_logprobs, batch.ref_logprobs.begin() + begin);
        std::ranges::copy(at.values, batch.values.begin() + begin);
        std::ranges::copy(at.teacher_logprobs, batch.teacher_logprobs.begin() + begin);
      },
      metrics, asked));
  if (ranks_.count() == 1) return batch;
  std::vector<int> owners;
  for (const int owner : owners_of(samples)) owners.insert(owners.end(), batch.length, owner);
  TRY(ranks_.exchange(std::span(batch.logprobs), owners));
  if (refers) TRY(ranks_.exchange(std::span(batch.ref_logprobs), owners));
  if (critic_) TRY(ranks_.exchange(std::span(batch.values), owners));
  if (is_taught) TRY(ranks_.exchange(std::span(batch.teacher_logprobs), owners));
  return batch;
}

Result<StepMetrics> Learner::reinforce_whole(std::span<const Sample> samples, const Algorithm& algorithm,
                                             uint64_t version) {
  StepMetrics of_survey;
  const auto drawn = without_demonstrations(samples);
  const double demonstrated = trained_tokens(samples.subspan(drawn.size()));
  LossBatch batch = TRY(survey(drawn, version, of_survey, Asked::kTeacher));
  const auto parts = parts_in(algorithm, drawn);
  batch.anchors = anchors_of(drawn, parts);
  PartMetrics counted;
  auto loss = batch_loss(batch, drawn, parts, functions_, static_cast<int64_t>(version) + 1, counted);
  TRY(ranks_.agree(loss ? Status() : loss.error()));
  StepMetrics metrics;
  ValueLoss values;
  const Critic critic = critic_of(parts) != nullptr ? critic_of(parts)->critic : Critic{};
  if (!loss->returns.empty()) {
    values = value_loss(critic_mask(batch, parts), batch.values, loss->returns, critic.coefficient);
    value_pass_ = {.gradients = values.gradients, .length = batch.length, .trunk = critic.trunk, .sum = {}};
  }
  const EntropyBonus bonus = entropy_.bonus(algorithm.entropy_target);
  const auto shares = trunk_shares(drawn, parts);
  double tokens = 0;
  for (size_t i = 0; i < drawn.size(); ++i)
    tokens += weight_of(static_cast<size_t>(std::ranges::count(drawn[i].trained, uint8_t{1})), shares[i]);
  const auto accumulated = accumulate(
      samples,
      [&](size_t index, const TokenLogprobs& at, std::vector<double>& gradients, Outcome& outcome) {
        if (index >= drawn.size()) return imitate(at, demonstrated, algorithm.demonstrations, gradients, outcome);
        compare(samples[index], at, version, outcome);
        std::copy_n(loss->grad_logprobs.begin() + static_cast<ptrdiff_t>(index * batch.length), gradients.size(),
                    gradients.begin());
        bonus.add(at.logprobs, token_weights(gradients.size(), shares[index]), tokens, gradients);
      },
      metrics);
  const auto value_pass = std::exchange(value_pass_, std::nullopt);
  TRY(accumulated ? Status() : accumulated.error());
  metrics.loss = loss->loss + critic.coefficient * values.loss;
  counted.write(algorithm, metrics);
  metrics.of_loss = std::move(loss->function_metrics);
  loss->taught.write(metrics.of_loss);
  if (!batch.anchors.empty()) metrics.of_loss["shared_states"] = shared_states(batch);
  if (value_pass) {
    metrics.of_loss["value_loss"] = values.loss;
    metrics.of_loss["explained_variance"] = values.explained_variance;
  }
  metrics.loss += demonstration_loss(samples, *accumulated, algorithm.demonstrations, metrics);
  metrics = TRY(finish(drawn, version, std::move(metrics)));
  if (value_pass && metrics.skipped_spikes == 0) TRY(critic_->step(stream_, value_pass->sum, updates_));
  return metrics;
}

Status Learner::sum_of_slots(std::vector<double>& head_gradients, const std::vector<int>& owners_of_slots) {
  const size_t count = critic_->elements();
  std::vector<int> owners;
  for (const int owner : owners_of_slots) owners.insert(owners.end(), count, owner);
  TRY(ranks_.exchange(std::span(head_gradients), owners));
  value_pass_->sum.assign(count, 0);
  for (size_t i = 0; i < head_gradients.size(); ++i) value_pass_->sum[i % count] += head_gradients[i];
  return {};
}

}  // namespace tandem::trainer
