// The learned reward: the number that an episode's advantage is computed from.
//
// Success is counted by the task's reward alone. The learned reward adds weights for how the episode went.
#pragma once

#include <string_view>

#include "rollout/books/ledger.h"

namespace tandem::rollout {

// The term of a judge that compares the episodes of a group: the share of comparisons won, from 0 to 1.
inline constexpr std::string_view kPreferred = "preferred";

// weights.task * reward
//   + weights.tests * share of the tests that passed (of the reward, where a task has no such share)
//   - weights.lints * n / (n + 1) for n problems that linters found and that were not there before
//   - weights.format * share of the calls that could not be read
//   + weights.terms of the user's own rewards, each times its term; an episode that has none of them has no reward
//   + weights.turns * the sum of the rewards of single messages
//   - weights.effort * C(x) where the task was met: giving up early never pays.
// C(x) = ((1 + k x)^(1 - q) - 1) / (k (1 - q)), ln(1 + k x) / k for q = 1: bends, so that what easy tasks take too much
// of counts more than what hard ones need (Cursor, "Composer"). x is weights.effort_token for each sampled token, and
// so for calls and messages.
double learned_reward(const Commit& commit, const RewardWeights& weights);

}  // namespace tandem::rollout
