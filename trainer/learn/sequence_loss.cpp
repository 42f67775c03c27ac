#include "trainer/learn/sequence_loss.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "trainer/learn/losses/policy_loss.h"

namespace tandem::trainer {

namespace {

Term kl_term(double logprob, double ref_logprob, const Kl& kl) {
  const double difference = ref_logprob - logprob;
  const double d = bounded(difference);
  Term term;
  switch (kl.estimator) {
    case Kl::Estimator::kNone:
      return term;
    case Kl::Estimator::kK1:
      term = {-d, 1};
      break;
    case Kl::Estimator::kK2:
      term = {d * d / 2, -d};
      break;
    case Kl::Estimator::kK3:
      term = {std::exp(d) - d - 1, 1 - std::exp(d)};
      break;
  }
  const double value = kl.clamp > 0 ? std::clamp(term.value, -kl.clamp, kl.clamp) : term.value;
  return {value, d != difference || value != term.value ? 0 : term.gradient};
}

// The constant weight for what the sampler did differently; 0 drops the token.
double weight_of(double log_weight, const Correction& c) {
  const double weight = std::exp(bounded(log_weight));
  if (c.kind == Correction::Kind::kTis) return std::min(weight, c.high);
  return weight >= c.low && weight <= c.high ? weight : 0;
}

double sum_of_differences(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] - b[i];
  return sum;
}

}  // namespace

std::span<const double> ratio_base(const CountedTokens& tokens, const Algorithm& algorithm) {
  const bool sampler = is_against_sampler(algorithm) || tokens.old_logprobs.empty();
  if (sampler && !tokens.rollout_logprobs.empty()) return tokens.rollout_logprobs;
  return tokens.old_logprobs.empty() ? tokens.logprobs : tokens.old_logprobs;
}

double kl_estimate(double logprob, double ref_logprob, const Kl& kl) { return kl_term(logprob, ref_logprob, kl).value; }

double sequence_loss(const CountedTokens& tokens, double weight, const Algorithm& a, std::span<double> grad_logprobs,
                     LossCounts& counts) {
  const auto base = ratio_base(tokens, a);
  const auto count = static_cast<double>(std::max<size_t>(1, tokens.logprobs.size()));
  // One ratio for all tokens: the exponent is their mean, held at most 10.
  const double mean = a.policy->one_ratio ? std::min(10.0, sum_of_differences(tokens.logprobs, base) / count) : 0;
  const bool corrects = a.correction.kind != Correction::Kind::kNone;
  const double whole =
      corrects && a.correction.sequence_level ? sum_of_differences(tokens.old_logprobs, tokens.rollout_logprobs) : 0;
  std::vector<double> log_ratios(tokens.logprobs.size(), mean);
  if (!a.policy->one_ratio) std::ranges::transform(tokens.logprobs, base, log_ratios.begin(), std::minus());
  std::vector<Term> terms(tokens.logprobs.size());
  if (!a.policy->is_function)
    a.policy->terms({tokens.logprobs, log_ratios, tokens.advantages, tokens.chosen}, a, counts, terms);
  double total = 0;
  for (size_t i = 0; i < tokens.logprobs.size(); ++i) {
    const double logprob = tokens.logprobs[i], log_ratio = log_ratios[i];
    double corrected = 1;
    if (corrects) {
      corrected = weight_of(a.correction.sequence_level ? whole : tokens.old_logprobs[i] - tokens.rollout_logprobs[i],
                            a.correction);
    }
    double loss = corrected * terms[i].value, gradient = corrected * terms[i].gradient;
    if (a.kl.estimator != Kl::Estimator::kNone) {
      const Term kl = kl_term(logprob, tokens.ref_logprobs[i], a.kl);
      counts.kl += kl.value;
      if (!a.kl.in_reward) {
        loss += a.kl.coefficient * kl.value;
        gradient += a.kl.coefficient * kl.gradient;
      }
    }
    // The sampled token's -logprob is the estimate of the entropy.
    loss += a.entropy * logprob;
    gradient += a.entropy;
    const double of_token = tokens.weights.empty() ? weight : weight * tokens.weights[i];
    total += of_token * loss;
    grad_logprobs[i] = of_token * gradient;

    const double ratio = std::exp(bounded(log_ratio));
    ++counts.tokens;
    counts.ratio += ratio;
    counts.ratio_max = std::max(counts.ratio_max, ratio);
    counts.entropy -= logprob;
    counts.weight += corrected;
    counts.dropped += corrected == 0;
    if (!tokens.rollout_logprobs.empty()) {
      const double d = bounded(logprob - tokens.rollout_logprobs[i]);
      counts.mismatch += std::exp(d) - d - 1;
    }
  }
  return total;
}

void LossCounts::add(const LossCounts& other) {
  for (const auto member : {&LossCounts::tokens, &LossCounts::clipped_low, &LossCounts::clipped_high,
                            &LossCounts::masked, &LossCounts::dropped, &LossCounts::ratio, &LossCounts::mismatch,
                            &LossCounts::weight, &LossCounts::kl, &LossCounts::entropy})
    this->*member += other.*member;
  ratio_max = std::max(ratio_max, other.ratio_max);
}

std::map<std::string, double> LossCounts::metrics(const Algorithm& algorithm, bool against_sampler) const {
  const double n = std::max(1.0, tokens);
  std::map<std::string, double> m = {
      {"tokens", tokens}, {"ratio_mean", ratio / n}, {"ratio_max", ratio_max}, {"entropy", entropy / n}};
  // DPPO masks and does not clip; what covariance chooses is counted beside what PPO clips.
  if (is_against_sampler(algorithm) || algorithm.policy->choose != nullptr) m["masked_fraction"] = masked / n;
  if (!is_against_sampler(algorithm) && !is_function(algorithm)) {
    m["clip_low_fraction"] = clipped_low / n;
    m["clip_high_fraction"] = clipped_high / n;
    m["clip_fraction"] = (clipped_low + clipped_high) / n;
  }
  if (against_sampler) m["mismatch_kl"] = mismatch / n;
  if (algorithm.kl.estimator != Kl::Estimator::kNone) m["kl"] = kl / n;
  if (algorithm.correction.kind != Correction::Kind::kNone) {
    m["correction_mean"] = weight / n;
    m["dropped_fraction"] = dropped / n;
  }
  return m;
}

std::vector<double> sequence_weights(std::span<const double> lengths, const Algorithm& algorithm) {
  const double tokens = std::accumulate(lengths.begin(), lengths.end(), 0.0);
  const auto sequences =
      static_cast<double>(std::count_if(lengths.begin(), lengths.end(), [](double n) { return n > 0; }));
  std::vector<double> weights(lengths.size(), 0);
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] == 0) continue;
    switch (algorithm.aggregation) {
      case Aggregation::kTokenMean:
        weights[i] = 1 / tokens;
        break;
      case Aggregation::kSeqMeanTokenMean:
        weights[i] = 1 / (sequences * lengths[i]);
        break;
      case Aggregation::kSeqMeanTokenSum:
        weights[i] = 1 / sequences;
        break;
      case Aggregation::kSumOverLength:
        weights[i] = 1 / (algorithm.aggregation_length * static_cast<double>(lengths.size()));
        break;
    }
  }
  return weights;
}

}  // namespace tandem::trainer
