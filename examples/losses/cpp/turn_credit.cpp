// Credit by the turn: a turn's tokens share its reward and what follows it, discounted by the turn and not by the
// token, against the mean of the same turn over the group. Ratios are clipped turn by turn (geometric mean of a turn's
// tokens).
//
// Useful where turns are rewarded by themselves; with one reward at the end and discount 1 all turns of an episode
// have the episode's advantage.
#include "tandem_loss.h"

namespace {

// [rows, turns]: the sum of `values` over the tokens of each turn.
torch::Tensor by_turn(const torch::Tensor& values, const tandem::LossInput& in, int64_t turns) {
  const auto place = torch::where(in.mask, in.segments, torch::zeros_like(in.segments));
  return torch::zeros({values.size(0), turns}, values.options()).scatter_add(1, place, values * in.mask);
}

// [rows, turns]
struct Credit {
  torch::Tensor tokens, there, advantage;
};

Credit credit_of(const tandem::LossInput& in) {
  if (!in.token_rewards.defined()) throw std::runtime_error("turn_credit needs rewards");
  const int64_t turns = std::max<int64_t>(1, in.segments.max().item<int64_t>() + 1);
  const auto tokens = by_turn(torch::ones_like(in.token_rewards), in, turns), there = tokens > 0;
  const auto rewards = by_turn(in.token_rewards, in, turns);
  // What each turn is followed by.
  auto returns = torch::zeros_like(rewards), following = torch::zeros({rewards.size(0)}, rewards.options());
  for (int64_t turn = turns; turn-- > 0;) {
    following = rewards.select(1, turn) + in.number("discount") * following;
    returns.select(1, turn).copy_(following);
  }
  // Against the mean of those of the group that came as far as this turn.
  const auto same = in.groups.unsqueeze(0).eq(in.groups.unsqueeze(1)).to(torch::kFloat64);
  const auto baseline = same.matmul(returns * there) / same.matmul(there.to(torch::kFloat64)).clamp_min(1);
  return {tokens, there, (returns - baseline) * there};
}

tandem::LossOutput turn_credit(const tandem::LossInput& in) {
  const auto [tokens, there, advantage] = credit_of(in);
  const auto log_ratio = by_turn(in.logprobs - in.rollout_logprobs, in, tokens.size(1)) / tokens.clamp_min(1);
  const auto ratio = torch::exp(log_ratio);
  const double clip = in.number("clip");
  const auto loss = torch::maximum(-advantage * ratio, -advantage * ratio.clamp(1 - clip, 1 + clip));
  return {(loss * tokens).sum() / tokens.sum().clamp_min(1), {{"turns", there.sum().item<double>()}}};
}

// The same credit for a built-in loss.
tandem::AdvantageOutput turn_advantages(const tandem::LossInput& in) {
  return {.advantages = credit_of(in).advantage.gather(1, in.segments.clamp_min(0)), .metrics = {}};
}

}  // namespace

TANDEM_LOSS(turn_credit, {"discount", 1.0}, {"clip", 0.2})
TANDEM_ADVANTAGES(turn_advantages, {"discount", 1.0})
