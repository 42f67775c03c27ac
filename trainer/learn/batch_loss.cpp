#include "trainer/learn/batch_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trainer/learn/batch_advantages.h"
#include "trainer/learn/sequence_loss.h"

namespace tandem::trainer {

namespace {

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
    LossCounts counts;
    for (size_t row = 0; row < batch_.rows; ++row) add(row, weights[row], counts, result);
    result.metrics = counts.metrics(algorithm_, !batch_.rollout_logprobs.empty());
    result.metrics["sequences"] =
        static_cast<double>(std::count_if(lengths.begin(), lengths.end(), [](int length) { return length > 0; }));
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

  Rows masked() const {
    Rows advantages = batch_.advantages;
    for (size_t i = 0; i < advantages.size(); ++i) advantages[i] = batch_.mask[i] ? advantages[i] : 0;
    return advantages;
  }

  Rows rewards() const {
    Rows rewards = batch_.rewards;
    if (!algorithm_.kl.in_reward) return rewards;
    const CountedTokens all{batch_.logprobs, batch_.old_logprobs, batch_.rollout_logprobs, {}, {}};
    const auto base = ratio_base(all, algorithm_);
    for (size_t i = 0; i < rewards.size(); ++i) {
      if (batch_.mask[i])
        rewards[i] -= algorithm_.kl.coefficient * kl_estimate(base[i], batch_.ref_logprobs[i], algorithm_.kl);
    }
    return rewards;
  }

  // The values of a row at the tokens that count.
  Rows counted(const Rows& values, size_t row) const {
    Rows chosen;
    if (values.empty()) return chosen;
    for (size_t i = row * batch_.length; i < (row + 1) * batch_.length; ++i) {
      if (batch_.mask[i]) chosen.push_back(values[i]);
    }
    return chosen;
  }

  void add(size_t row, double weight, LossCounts& counts, BatchLoss& result) const {
    const Rows logprobs = counted(batch_.logprobs, row), old = counted(batch_.old_logprobs, row),
               rollout = counted(batch_.rollout_logprobs, row), ref = counted(batch_.ref_logprobs, row),
               advantages = counted(result.advantages, row);
    Rows grads(logprobs.size());
    result.loss += sequence_loss({logprobs, old, rollout, ref, advantages}, weight, algorithm_, grads, counts);
    auto grad = grads.begin();
    for (size_t i = row * batch_.length; i < (row + 1) * batch_.length; ++i) {
      if (batch_.mask[i]) result.grad_logprobs[i] = *grad++;
    }
  }

  const Batch& batch_;
  const Algorithm& algorithm_;
};

}  // namespace

Result<BatchLoss> batch_loss(const Batch& batch, const Algorithm& algorithm) {
  return Loss(batch, algorithm).compute();
}

}  // namespace tandem::trainer
