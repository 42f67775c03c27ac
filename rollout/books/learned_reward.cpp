#include "rollout/books/learned_reward.h"

#include <algorithm>
#include <cmath>

namespace tandem::rollout {
namespace {

double term_of(const Commit& commit, const char* name, double otherwise) {
  const auto found = commit.terms.find(name);
  return found == commit.terms.end() ? otherwise : found->second;
}

double bent(double x, double k, double q) {
  return q == 1 ? std::log1p(k * x) / k : (std::pow(1 + k * x, 1 - q) - 1) / (k * (1 - q));
}

}  // namespace

double learned_reward(const Commit& commit, const RewardWeights& weights) {
  const double reward = commit.reward.value_or(0);
  const double lints = term_of(commit, "lints", 0);
  const double unread = term_of(commit, "unread_calls", 0);
  double learned = weights.task * reward + weights.tests * term_of(commit, "tests_passed", reward) -
                   weights.lints * lints / (lints + 1) -
                   weights.format * unread / std::max(1.0, 1.0 * commit.tool_calls);
  for (const auto& [name, weight] : weights.terms) learned += weight * term_of(commit, name.c_str(), 0);
  for (const double turn : commit.turn_rewards) learned += weights.turns * turn;
  if (weights.effort > 0 && reward > 0) {
    const double x = weights.effort_token * commit.sampled_tokens + weights.effort_call * commit.tool_calls +
                     weights.effort_turn * commit.turns;
    learned -= weights.effort * bent(x, weights.effort_k, weights.effort_q);
  }
  return learned;
}

}  // namespace tandem::rollout
