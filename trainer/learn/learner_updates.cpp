// A step of several updates: epochs of minibatches over one batch (batch_updates.h).
//
// What every update is measured against is made once, by the policy before the step: old logprobs, advantages, returns.
// All ranks have them for all samples, and decide alike when a step ends early.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "trainer/learn/anchors.h"
#include "trainer/learn/batch_loss.h"
#include "trainer/learn/learner.h"
#include "trainer/learn/losses/policy_loss.h"

namespace tandem::trainer {

namespace {

// r - 1 - ln r, which is never below 0; its mean over tokens of the old policy is the distance to the new one.
double distance(double old_logprob, double logprob) {
  const double log_ratio = bounded(logprob - old_logprob);
  return std::exp(log_ratio) - log_ratio - 1;
}

// Whether the loss of a token needs the logprobs of all others as they are now.
bool looks_at_all(const Algorithm& algorithm) { return is_function(algorithm) || algorithm.policy->choose != nullptr; }

double mismatch_of(const LossBatch& batch) {
  double sum = 0, tokens = 0;
  for (size_t i = 0; i < batch.mask.size(); ++i) {
    if (!batch.mask[i]) continue;
    sum += distance(batch.rollout_logprobs[i], batch.old_logprobs[i]);
    ++tokens;
  }
  return tokens > 0 ? sum / tokens : 0;
}

// The means over updates, for the step.
class Means {
 public:
  void add(const StepMetrics& update) {
    ++count_;
    for (const auto member : kMembers) sum_.*member += update.*member;
    sum_.ratio_max = std::max(count_ == 1 ? 0 : sum_.ratio_max, update.ratio_max);
    for (const auto& [name, value] : update.of_loss) {
      ++of_loss_updates_[name];
      sum_.of_loss[name] += value;
    }
    for (const auto& [part, means] : update.parts) {
      ++updates_[part];
      for (const auto& [name, value] : means) sum_.parts[part][name] += value;
    }
  }
  void write(StepMetrics& metrics) const {
    if (count_ == 0) return;
    for (const auto member : kMembers) metrics.*member = sum_.*member / count_;
    metrics.ratio_max = sum_.ratio_max;
    for (const auto& [name, value] : sum_.of_loss) metrics.of_loss[name] = value / of_loss_updates_.at(name);
    for (const auto& [part, means] : sum_.parts) {
      for (const auto& [name, value] : means) metrics.parts[part][name] = value / updates_.at(part);
    }
  }

 private:
  static constexpr double StepMetrics::*kMembers[] = {
      &StepMetrics::loss,          &StepMetrics::grad_norm,  &StepMetrics::learning_rate,
      &StepMetrics::entropy,       &StepMetrics::kl,         &StepMetrics::correction_mean,
      &StepMetrics::clip_fraction, &StepMetrics::ratio_mean, &StepMetrics::dropped_fraction};
  static StepMetrics zeros() {
    StepMetrics metrics;
    for (const auto member : kMembers) metrics.*member = 0;
    return metrics;
  }
  double count_ = 0;
  std::map<std::string, double> updates_;          // that had samples of a part
  std::map<std::string, double> of_loss_updates_;  // that had such a number: a critic's samples, demonstrations
  StepMetrics sum_ = zeros();
};

}  // namespace

Result<Learner::Pass> Learner::pass_through(std::span<const Sample> samples, std::span<const size_t> rows,
                                            const LossBatch& batch, const Rows& returns, const Algorithm& algorithm,
                                            uint64_t version) {
  const auto drawn = samples.first(rows.size());
  const double demonstrated = trained_tokens(samples.subspan(rows.size()));
  std::vector<int> lengths;
  for (const size_t row : rows) {
    const auto begin = batch.mask.begin() + static_cast<ptrdiff_t>(row * batch.length);
    lengths.push_back(static_cast<int>(std::count(begin, begin + static_cast<ptrdiff_t>(batch.length), 1)));
  }
  double tokens = 0;
  for (const int length : lengths) tokens += length;
  const auto parts = parts_in(algorithm, drawn);
  const auto shares = trunk_shares(drawn, parts);
  std::vector<double> weighed;
  for (size_t i = 0; i < lengths.size(); ++i) weighed.push_back(weight_of(static_cast<size_t>(lengths[i]), shares[i]));
  const auto weights = sequence_weights(weighed, parts);
  const EntropyBonus bonus = entropy_.bonus(algorithm.entropy_target);
  const double weighed_tokens = std::accumulate(weighed.begin(), weighed.end(), 0.0);
  const auto of_row = [&](const Rows& values, size_t index) {
    return std::span(values).subspan(rows[index] * batch.length, static_cast<size_t>(lengths[index]));
  };
  Pass pass;
  PartMetrics counted;
  std::optional<BatchLoss> whole;
  size_t whole_length = 0;
  if (any_part(algorithm, looks_at_all)) {
    StepMetrics of_survey;
    LossBatch now = TRY(survey(drawn, version, of_survey));
    now.old_logprobs.assign(now.mask.size(), 0);
    now.advantages.assign(now.mask.size(), 0);
    now.is_credited = true;
    for (size_t i = 0; i < drawn.size(); ++i) {
      const auto to = static_cast<ptrdiff_t>(i * now.length);
      std::ranges::copy(of_row(batch.old_logprobs, i), now.old_logprobs.begin() + to);
      std::ranges::copy(of_row(batch.advantages, i), now.advantages.begin() + to);
    }
    auto loss = batch_loss(now, drawn, parts, functions_, static_cast<int64_t>(version) + 1, counted);
    TRY(ranks_.agree(loss ? Status() : loss.error()));
    whole = std::move(*loss);
    whole_length = now.length;
  }
  Rows value_gradients;
  double critic_tokens = 0;
  const Critic critic = critic_of(parts) != nullptr ? critic_of(parts)->critic : Critic{};
  for (size_t i = 0; i < drawn.size(); ++i)
    critic_tokens += needs_critic(part_of(algorithm, samples[i].part)) ? lengths[i] : 0;
  if (critic_tokens > 0) {
    value_gradients.assign(rows.size() * batch.length, 0);
    value_pass_ = {.gradients = value_gradients, .length = batch.length, .trunk = critic.trunk, .sum = {}};
  }
  const auto accumulated = accumulate(
      samples,
      [&](size_t index, const TokenLogprobs& at, std::vector<double>& gradients, Outcome& outcome) {
        if (index >= drawn.size()) return imitate(at, demonstrated, algorithm.demonstrations, gradients, outcome);
        const Algorithm& of_part = part_of(algorithm, samples[index].part);
        const auto old = of_row(batch.old_logprobs, index);
        for (size_t i = 0; i < old.size(); ++i) outcome.moved += distance(old[i], at.logprobs[i]);
        for (size_t i = 0; i < old.size() && needs_critic(of_part); ++i) {
          const double error = at.values[i] - of_row(returns, index)[i];
          outcome.value_error += error * error;
          value_gradients[index * batch.length + i] = 2 * critic.coefficient * error / critic_tokens;
        }
        const auto token_weight = token_weights(old.size(), shares[index]);
        if (whole) {
          std::copy_n(whole->grad_logprobs.begin() + static_cast<ptrdiff_t>(index * whole_length), gradients.size(),
                      gradients.begin());
          return bonus.add(at.logprobs, token_weight, weighed_tokens, gradients);
        }
        const CountedTokens tokens_of_row{.logprobs = at.logprobs,
                                          .old_logprobs = old,
                                          .rollout_logprobs = of_row(batch.rollout_logprobs, index),
                                          .ref_logprobs = at.ref_logprobs,
                                          .advantages = of_row(batch.advantages, index),
                                          .weights = token_weight};
        outcome.loss = sequence_loss(tokens_of_row, weights[index], of_part, gradients, outcome.counts);
        bonus.add(at.logprobs, token_weight, weighed_tokens, gradients);
      },
      pass.metrics);
  auto value_pass = std::exchange(value_pass_, std::nullopt);
  const auto outcomes = TRY(accumulated);
  double moved = 0, value_error = 0;
  for (const Outcome& outcome : std::span(outcomes).first(drawn.size())) {
    pass.metrics.loss += outcome.loss;
    moved += outcome.moved;
    value_error += outcome.value_error;
  }
  if (value_pass) {
    pass.head_gradient = std::move(value_pass->sum);
    pass.metrics.of_loss["value_loss"] = value_error / critic_tokens;
    pass.metrics.loss += critic.coefficient * pass.metrics.of_loss["value_loss"];
  }
  if (whole) {
    pass.metrics.loss += whole->loss;
    pass.metrics.of_loss.insert(whole->function_metrics.begin(), whole->function_metrics.end());
  }
  pass.metrics.loss += demonstration_loss(samples, outcomes, algorithm.demonstrations, pass.metrics);
  (whole ? counted : means_of(parts, outcomes)).write(algorithm, pass.metrics);
  pass.update = {.loss = pass.metrics.loss,
                 .ratio_mean = pass.metrics.ratio_mean,
                 .ratio_max = pass.metrics.ratio_max,
                 .clip_fraction = pass.metrics.clip_fraction,
                 .approx_kl = tokens > 0 ? moved / tokens : 0,
                 .tokens = static_cast<int64_t>(tokens)};
  return pass;
}

Result<StepMetrics> Learner::reinforce_repeatedly(std::span<const Sample> samples, const Algorithm& algorithm,
                                                  uint64_t version) {
  StepMetrics metrics;
  const auto drawn = without_demonstrations(samples), demonstrations = samples.subspan(drawn.size());
  LossBatch batch = TRY(survey(drawn, version, metrics, Asked::kTeacher));
  batch.old_logprobs = batch.logprobs;
  const auto parts = parts_in(algorithm, drawn);
  batch.anchors = anchors_of(drawn, parts);
  if (!batch.anchors.empty()) metrics.of_loss["shared_states"] = shared_states(batch);
  auto credit = credit_of(batch, drawn, parts, functions_, static_cast<int64_t>(version) + 1);
  TRY(ranks_.agree(credit ? Status() : credit.error()));
  batch.advantages = std::move(credit->advantages);
  credit->taught.write(metrics.of_loss);
  metrics.of_loss.merge(credit->function_metrics);
  if (!credit->returns.empty())
    metrics.of_loss["explained_variance"] =
        value_loss(critic_mask(batch, parts), batch.values, credit->returns, 1).explained_variance;
  TRY(keep_previous(drawn, version, metrics));

  const BatchUpdates& updates = settings_.updates;
  const auto groups = groups_of(drawn);
  Means means;
  bool stopped = false;
  for (int epoch = 0; epoch < updates.epochs && !stopped; ++epoch) {
    const auto minibatches = minibatches_of(updates, groups.size(), version + 1, epoch);
    for (size_t part = 0; part < minibatches.size() && !stopped; ++part) {
      std::vector<size_t> rows;
      std::vector<Sample> chosen;  // of the minibatch
      for (const size_t group : minibatches[part]) {
        for (size_t i = groups[group].begin; i < groups[group].end; ++i) rows.push_back(i);
      }
      const bool is_all = rows.size() == drawn.size();
      for (size_t i = 0; i < rows.size() && !is_all; ++i) chosen.push_back(samples[rows[i]]);
      for (size_t i = part; i < demonstrations.size() && !is_all; i += minibatches.size())
        chosen.push_back(demonstrations[i]);
      Pass pass = TRY(pass_through(is_all ? samples : std::span<const Sample>(chosen), rows, batch, credit->returns,
                                   algorithm, version));
      pass.update.epoch = epoch + 1;
      pass.update.minibatch = static_cast<int>(part) + 1;
      stopped = updates.kl_stop > 0 && pass.update.approx_kl > updates.kl_stop;
      if (stopped) {
        pass.update.taken = false;
        forget_gradients();
      } else {
        TRY(update(pass.metrics));
        pass.update.spike = pass.metrics.skipped_spikes > 0;
        metrics.skipped_spikes += pass.metrics.skipped_spikes;
        if (!pass.head_gradient.empty() && !pass.update.spike)
          TRY(critic_->step(stream_, pass.head_gradient, updates_));
        pass.update.grad_norm = pass.metrics.grad_norm;
        means.add(pass.metrics);
      }
      metrics.updates.push_back(pass.update);
    }
  }
  means.write(metrics);
  metrics.mismatch_kl = mismatch_of(batch);
  ++steps_;
  return metrics;
}

}  // namespace tandem::trainer
