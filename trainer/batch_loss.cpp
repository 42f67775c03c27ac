#include "trainer/batch_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trainer/batch_advantages.h"
#include "trainer/objective.h"

namespace tandem::trainer {

namespace {

constexpr double kLogBound = 20;

// A value and its derivative by the token's logprob.
struct Term {
  double value = 0, slope = 0;
};

Term kl_term(double logprob, double ref_logprob, const Kl& kl) {
  const double difference = ref_logprob - logprob;
  const double d = std::clamp(difference, -kLogBound, kLogBound);
  const bool bounded = d != difference;
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
  return {value, bounded || value != term.value ? 0 : term.slope};
}

// What was counted over the tokens that count.
struct Counts {
  double tokens = 0, clipped_low = 0, clipped_high = 0, masked = 0, dropped = 0;
  double ratio = 0, ratio_max = 0, mismatch = 0, weight = 0, kl = 0, entropy = 0;
};

class Loss {
 public:
  Loss(const Batch& batch, const Algorithm& algorithm) : batch_(batch), algorithm_(algorithm) {}

  Result<BatchLoss> compute() {
    TRY(check());
    const size_t count = batch_.rows * batch_.length;
    BatchLoss result;
    result.grad_logprobs.assign(count, 0);
    result.advantages = batch_.advantages.empty() ? TRY(batch_advantages(batch_, rewards(), algorithm_)) : masked();
    std::vector<int> lengths(batch_.rows, 0);
    for (size_t i = 0; i < count; ++i) lengths[i / batch_.length] += batch_.mask[i];
    const auto weights = sequence_weights(lengths, algorithm_);
    for (size_t row = 0; row < batch_.rows; ++row) add(row, weights[row], result);
    result.metrics = metrics(lengths);
    return result;
  }

 private:
  Status check() const {
    if (batch_.advantages.empty() && batch_.rewards.empty()) return Status::invalid("advantages or rewards are needed");
    if (algorithm_.kl.estimator != Kl::Estimator::kNone && batch_.ref_logprobs.empty())
      return Status::invalid("kl needs \"ref_logprobs\"");
    if (algorithm_.kl.in_reward && batch_.rewards.empty())
      return Status::invalid("kl.in_reward needs \"rewards\": the advantages are given");
    if (algorithm_.correction.kind == Correction::Kind::kNone) return {};
    if (batch_.rollout_logprobs.empty()) return Status::invalid("correction needs \"rollout_logprobs\"");
    if (algorithm_.policy == Policy::kMasked || batch_.old_logprobs.empty()) {
      return Status::invalid(
          "the ratio is already taken against rollout_logprobs: a correction would count the difference twice; give "
          "\"old_logprobs\", or set correction.kind to none");
    }
    return {};
  }

  // What ratios are taken against.
  const Rows& base() const {
    const bool sampler = algorithm_.policy == Policy::kMasked || batch_.old_logprobs.empty();
    if (sampler && !batch_.rollout_logprobs.empty()) return batch_.rollout_logprobs;
    return batch_.old_logprobs.empty() ? batch_.logprobs : batch_.old_logprobs;
  }

  Rows masked() const {
    Rows advantages = batch_.advantages;
    for (size_t i = 0; i < advantages.size(); ++i) advantages[i] = batch_.mask[i] ? advantages[i] : 0;
    return advantages;
  }

  Rows rewards() const {
    Rows rewards = batch_.rewards;
    if (!algorithm_.kl.in_reward) return rewards;
    for (size_t i = 0; i < rewards.size(); ++i) {
      if (batch_.mask[i])
        rewards[i] -= algorithm_.kl.coefficient * kl_term(base()[i], batch_.ref_logprobs[i], algorithm_.kl).value;
    }
    return rewards;
  }

  double log_ratio(size_t i) const { return batch_.logprobs[i] - base()[i]; }

  // The mean log ratio of the sequence, held at most 10: its exponent is the ratio of all its tokens.
  double sequence_log_ratio(size_t row) const {
    double sum = 0, count = 0;
    for (size_t i = row * batch_.length; i < (row + 1) * batch_.length; ++i) {
      if (batch_.mask[i]) sum += log_ratio(i), ++count;
    }
    return std::min(10.0, sum / std::max(1.0, count));
  }

  double sampler_difference(size_t i) const { return batch_.old_logprobs[i] - batch_.rollout_logprobs[i]; }

  // Of a whole row, where one weight stands for all its tokens.
  double row_difference(size_t row) const {
    if (algorithm_.correction.kind == Correction::Kind::kNone || !algorithm_.correction.sequence_level) return 0;
    double sum = 0;
    for (size_t i = row * batch_.length; i < (row + 1) * batch_.length; ++i) {
      if (batch_.mask[i]) sum += sampler_difference(i);
    }
    return sum;
  }

  // The constant weight for what the sampler did differently; 0 drops the token.
  double correction(size_t token, double whole_row) const {
    const Correction& c = algorithm_.correction;
    if (c.kind == Correction::Kind::kNone) return 1;
    const double log_weight = c.sequence_level ? whole_row : sampler_difference(token);
    const double weight = std::exp(std::clamp(log_weight, -kLogBound, kLogBound));
    if (c.kind == Correction::Kind::kTis) return std::min(weight, c.high);
    return weight >= c.low && weight <= c.high ? weight : 0;
  }

  Term policy_term(size_t i, double advantage, double log_ratio) {
    const Algorithm& a = algorithm_;
    const double logprob = batch_.logprobs[i];
    if (a.policy == Policy::kMasked) {
      const double ratio = std::exp(log_ratio), moved = std::exp(logprob) - std::exp(logprob - log_ratio);
      const bool keep = !(advantage > 0 && moved > a.mask_high) && !(advantage < 0 && moved < -a.mask_low);
      counts_.masked += !keep;
      const double gain = keep ? advantage * ratio : 0;
      return {a.penalty * log_ratio * log_ratio - gain, 2 * a.penalty * log_ratio - gain};
    }
    const double ratio = std::exp(std::clamp(log_ratio, -kLogBound, kLogBound));
    counts_.clipped_low += ratio < 1 - a.clip_low && (a.policy == Policy::kWeighted || advantage < 0);
    counts_.clipped_high += ratio > 1 + a.clip_high && (a.policy == Policy::kWeighted || advantage > 0);
    if (a.policy == Policy::kWeighted) {
      const double weight = std::clamp(ratio, 1 - a.clip_low, 1 + a.clip_high) * advantage;
      return {-weight * logprob, -weight};
    }
    // Of a sequence's ratio each token has the derivative of its own.
    const TokenLoss loss = token_loss(log_ratio, 0, advantage, a);
    return {loss.loss, std::abs(log_ratio) > kLogBound ? 0 : loss.slope};
  }

  void add(size_t row, double weight, BatchLoss& result) {
    const double whole = algorithm_.policy == Policy::kSequence ? sequence_log_ratio(row) : 0;
    const double difference = row_difference(row);
    for (size_t i = row * batch_.length; i < (row + 1) * batch_.length; ++i) {
      if (!batch_.mask[i]) continue;
      const double log_ratio = algorithm_.policy == Policy::kSequence ? whole : this->log_ratio(i);
      const double corrected = correction(i, difference);
      const Term policy = policy_term(i, result.advantages[i], log_ratio);
      double loss = corrected * policy.value, slope = corrected * policy.slope;
      if (algorithm_.kl.estimator != Kl::Estimator::kNone) {
        const Term kl = kl_term(batch_.logprobs[i], batch_.ref_logprobs[i], algorithm_.kl);
        counts_.kl += kl.value;
        if (!algorithm_.kl.in_reward) {
          loss += algorithm_.kl.coefficient * kl.value;
          slope += algorithm_.kl.coefficient * kl.slope;
        }
      }
      // The sampled token's -logprob is the estimate of the entropy.
      loss += algorithm_.entropy * batch_.logprobs[i];
      slope += algorithm_.entropy;
      result.loss += weight * loss;
      result.grad_logprobs[i] = weight * slope;
      count(i, log_ratio, corrected);
    }
  }

  void count(size_t i, double log_ratio, double corrected) {
    const double ratio = std::exp(std::clamp(log_ratio, -kLogBound, kLogBound));
    ++counts_.tokens;
    counts_.ratio += ratio;
    counts_.ratio_max = std::max(counts_.ratio_max, ratio);
    counts_.entropy -= batch_.logprobs[i];
    counts_.weight += corrected;
    counts_.dropped += corrected == 0;
    if (!batch_.rollout_logprobs.empty()) {
      const double d = std::clamp(batch_.logprobs[i] - batch_.rollout_logprobs[i], -kLogBound, kLogBound);
      counts_.mismatch += std::exp(d) - d - 1;
    }
  }

  std::map<std::string, double> metrics(const std::vector<int>& lengths) const {
    const double n = std::max(1.0, counts_.tokens);
    std::map<std::string, double> m = {
        {"tokens", counts_.tokens},
        {"sequences", static_cast<double>(std::count_if(lengths.begin(), lengths.end(), [](int l) { return l > 0; }))},
        {"ratio_mean", counts_.ratio / n},
        {"ratio_max", counts_.ratio_max},
        {"entropy", counts_.entropy / n}};
    if (algorithm_.policy == Policy::kMasked) {
      m["masked_fraction"] = counts_.masked / n;
    } else {
      m["clip_low_fraction"] = counts_.clipped_low / n;
      m["clip_high_fraction"] = counts_.clipped_high / n;
      m["clip_fraction"] = (counts_.clipped_low + counts_.clipped_high) / n;
    }
    if (!batch_.rollout_logprobs.empty()) m["mismatch_kl"] = counts_.mismatch / n;
    if (algorithm_.kl.estimator != Kl::Estimator::kNone) m["kl"] = counts_.kl / n;
    if (algorithm_.correction.kind != Correction::Kind::kNone) {
      m["correction_mean"] = counts_.weight / n;
      m["dropped_fraction"] = counts_.dropped / n;
    }
    return m;
  }

  const Batch& batch_;
  const Algorithm& algorithm_;
  Counts counts_;
};

}  // namespace

Result<BatchLoss> batch_loss(const Batch& batch, const Algorithm& algorithm) {
  return Loss(batch, algorithm).compute();
}

}  // namespace tandem::trainer
