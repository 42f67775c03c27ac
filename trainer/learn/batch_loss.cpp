#include "trainer/learn/batch_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trainer/learn/batch_advantages.h"
#include "trainer/learn/branch_credit.h"
#include "trainer/learn/losses/policy_loss.h"
#include "trainer/learn/sequence_loss.h"

namespace tandem::trainer {

namespace {

class Loss {
 public:
  Loss(const LossBatch& batch, const Algorithm& algorithm, const OwnFunctions& functions, int64_t step)
      : batch_(batch), algorithm_(algorithm), functions_(functions), step_(step) {}

  Result<BatchLoss> compute() {
    TRY(check());
    const size_t count = batch_.rows * batch_.length;
    BatchLoss result;
    result.grad_logprobs.assign(count, 0);
    if (batch_.advantages.empty()) {
      Credit credit = TRY(this->credit());
      result.advantages = std::move(credit.advantages);
      result.returns = std::move(credit.returns);
      result.taught = credit.taught;
      result.function_metrics = std::move(credit.function_metrics);
    } else {
      result.advantages = masked();
      credit_trunks(batch_, algorithm_.branches, result.advantages);
      result.taught = add_teacher(batch_, algorithm_.teacher, result.advantages);
    }
    std::vector<int> lengths(batch_.rows, 0);
    for (size_t i = 0; i < count; ++i) lengths[i / batch_.length] += batch_.mask[i];
    shares_ = trunk_shares(batch_.trunks, algorithm_.branches);
    std::vector<double> weighed(lengths.begin(), lengths.end());
    for (size_t row = 0; row < shares_.size(); ++row)
      weighed[row] = weight_of(static_cast<size_t>(lengths[row]), shares_[row]);
    const auto weights = sequence_weights(weighed, algorithm_);
    LossCounts counts;
    if (is_function(algorithm_)) {
      if (functions_.loss == nullptr) return fail(Status::internal("the algorithm torch needs a function"));
      FunctionOutput output = TRY(functions_.loss->compute(
          {.batch = completed(), .advantages = result.advantages, .weights = weights, .step = step_}));
      result.loss = output.loss;
      result.grad_logprobs = std::move(output.grad_logprobs);
      result.function_metrics.merge(output.metrics);
    }
    if (algorithm_.policy->choose != nullptr) {
      const CountedTokens all{batch_.logprobs, batch_.old_logprobs, batch_.rollout_logprobs, {}, {}};
      const auto base = ratio_base(all, algorithm_);
      chosen_ = algorithm_.policy->choose(batch_, result.advantages, Rows(base.begin(), base.end()), algorithm_, step_);
    }
    for (size_t row = 0; row < batch_.rows; ++row) add(row, weights[row], counts, result);
    result.metrics = counts.metrics(algorithm_, !batch_.rollout_logprobs.empty());
    result.taught.write(result.metrics);
    result.metrics["sequences"] =
        static_cast<double>(std::count_if(lengths.begin(), lengths.end(), [](int length) { return length > 0; }));
    return result;
  }

  Result<Credit> credit() const {
    Credit credit{.advantages = {}, .returns = {}};
    if (algorithm_.advantage == AdvantageKind::kTorch)
      TRY(make_own_advantages(credit));
    else
      credit.advantages = TRY(batch_advantages(batch_, rewards(), algorithm_));
    // A critic learns what is made of rewards; and whitening, were it later, would undo the teacher's scale.
    if (algorithm_.advantage == AdvantageKind::kGae) credit.returns = TRY(returns());
    credit_trunks(batch_, algorithm_.branches, credit.advantages);
    credit.taught = add_teacher(batch_, algorithm_.teacher, credit.advantages);
    return credit;
  }

  Status check() const {
    const bool distills = algorithm_.advantage == AdvantageKind::kDistill;
    if (batch_.advantages.empty() && batch_.rewards.empty() && !distills)
      return Status::invalid("advantages or rewards are needed");
    if (batch_.advantages.empty() && batch_.teacher_logprobs.empty() && (distills || algorithm_.teacher.any()))
      return Status::invalid("advantage distill, and a teacher beside another one, need \"teacher_logprobs\"");
    if (algorithm_.kl.estimator != Kl::Estimator::kNone && batch_.ref_logprobs.empty())
      return Status::invalid("kl needs \"ref_logprobs\"");
    if (algorithm_.kl.in_reward && batch_.rewards.empty())
      return Status::invalid("kl.in_reward needs \"rewards\": the advantages are given");
    TRY(check_trunks(batch_));
    if (is_function(algorithm_) && !trunk_shares(batch_.trunks, algorithm_.branches).empty())
      return Status::invalid("torch has no weights of tokens: branch_credit tree cannot be with \"trunks\"")
          .hint("set branch_credit to none");
    if (algorithm_.correction.kind == Correction::Kind::kNone) return {};
    if (batch_.rollout_logprobs.empty()) return Status::invalid("correction needs \"rollout_logprobs\"");
    if (is_against_sampler(algorithm_) || batch_.old_logprobs.empty()) {
      return Status::invalid(
          "the ratio is already taken against rollout_logprobs: a correction would count the difference twice; give "
          "\"old_logprobs\", or set correction.kind to none");
    }
    return {};
  }

 private:
  Status make_own_advantages(Credit& credit) const {
    if (functions_.advantages == nullptr) return Status::internal("the advantage torch needs a function");
    LossBatch batch = completed();
    batch.rewards = rewards();
    if (batch_.old_logprobs.empty()) batch.old_logprobs = batch_.logprobs;
    AdvantageOutput output = TRY(functions_.advantages->compute(batch, step_));
    credit.advantages = std::move(output.advantages);
    if (algorithm_.whiten_advantages) whiten(credit.advantages, batch_.mask);
    for (const auto& [name, value] : output.metrics) credit.function_metrics["advantage_" + name] = value;
    return {};
  }

  // With what a function can count on: old and rollout logprobs, groups, turns.
  LossBatch completed() const {
    LossBatch batch = batch_;
    if (batch.old_logprobs.empty())
      batch.old_logprobs = batch.rollout_logprobs.empty() ? batch.logprobs : batch.rollout_logprobs;
    if (batch.rollout_logprobs.empty()) batch.rollout_logprobs = batch.old_logprobs;
    if (batch.groups.empty()) {
      for (size_t row = 0; row < batch.rows; ++row) batch.groups.push_back(static_cast<int64_t>(row));
    }
    batch.turns = turns_of(batch_);
    return batch;
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

  // Advantages before whitening are measured from the values.
  Result<Rows> returns() const {
    Algorithm plain = algorithm_;
    plain.whiten_advantages = false;
    Rows returns = TRY(batch_advantages(batch_, rewards(), plain));
    for (size_t i = 0; i < returns.size(); ++i) returns[i] = batch_.mask[i] ? returns[i] + batch_.values[i] : 0;
    return returns;
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
    std::vector<uint8_t> chosen;
    for (size_t i = row * batch_.length; i < (row + 1) * batch_.length && !chosen_.empty(); ++i) {
      if (batch_.mask[i]) chosen.push_back(chosen_[i]);
    }
    const auto token_weight = shares_.empty() ? std::vector<double>() : token_weights(logprobs.size(), shares_[row]);
    const double loss = sequence_loss({logprobs, old, rollout, ref, advantages, token_weight, chosen}, weight,
                                      algorithm_, grads, counts);
    if (is_function(algorithm_)) return;  // counted, and no more
    result.loss += loss;
    auto grad = grads.begin();
    for (size_t i = row * batch_.length; i < (row + 1) * batch_.length; ++i) {
      if (batch_.mask[i]) result.grad_logprobs[i] = *grad++;
    }
  }

  const LossBatch& batch_;
  const Algorithm& algorithm_;
  const OwnFunctions& functions_;
  const int64_t step_;
  std::vector<uint8_t> chosen_;
  std::vector<TrunkShare> shares_;  // by row; empty: all tokens weigh 1
};

}  // namespace

Result<Credit> credit_of(const LossBatch& batch, const Algorithm& algorithm, const OwnFunctions& functions,
                         int64_t step) {
  const Loss loss(batch, algorithm, functions, step);
  TRY(loss.check());
  return loss.credit();
}

Result<BatchLoss> batch_loss(const LossBatch& batch, const Algorithm& algorithm, const OwnFunctions& functions,
                             int64_t step) {
  return Loss(batch, algorithm, functions, step).compute();
}

}  // namespace tandem::trainer
