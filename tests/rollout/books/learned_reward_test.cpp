#include "rollout/books/learned_reward.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem::rollout {
namespace {

Commit commit_of(double reward) {
  Commit commit;
  commit.reward = reward;
  commit.turns = 3;
  commit.tool_calls = 4;
  commit.sampled_tokens = 1000;
  return commit;
}

TEST(LearnedReward, is_the_tasks_own_unless_something_is_weighed_in) {
  auto commit = commit_of(1);
  commit.terms = {{"lints", 7}, {"unread_calls", 2}, {"tests_passed", 0.5}};
  EXPECT_EQ(learned_reward(commit, {}), 1);
  commit.reward = 0;
  EXPECT_EQ(learned_reward(commit, {}), 0);
}

TEST(LearnedReward, weighs_tests_lints_and_calls_that_could_not_be_read) {
  auto commit = commit_of(0);
  commit.terms = {{"lints", 3}, {"unread_calls", 1}, {"tests_passed", 0.5}};
  EXPECT_DOUBLE_EQ(learned_reward(commit, {.tests = 0.4}), 0.2);
  EXPECT_DOUBLE_EQ(learned_reward(commit, {.lints = 0.4}), -0.3);
  EXPECT_DOUBLE_EQ(learned_reward(commit, {.format = 0.4}), -0.1);
  commit.reward = 1;
  commit.terms.clear();
  EXPECT_DOUBLE_EQ(learned_reward(commit, {.task = 0.5, .tests = 0.4, .lints = 1, .format = 1}), 0.9)
      << "a task without a share of tests counts as its reward";
}

// ((1 + k x)^(1 - q) - 1) / (k (1 - q)) at x = 1, and its limits.
TEST(LearnedReward, takes_off_an_effort_that_bends) {
  const auto commit = commit_of(1);
  const RewardWeights weights{.effort = 0.1};
  EXPECT_DOUBLE_EQ(1 - learned_reward(commit, weights), 0.1 * (std::sqrt(2.0) - 1) / 0.5);
  auto straight = weights, logarithm = weights, steep = weights;
  straight.effort_q = 0;
  logarithm.effort_q = 1;
  steep.effort_k = 8;
  EXPECT_NEAR(1 - learned_reward(commit, straight), 0.1, 1e-12);
  EXPECT_NEAR(1 - learned_reward(commit, logarithm), 0.1 * std::log(2.0), 1e-12);
  EXPECT_NEAR(1 - learned_reward(commit, steep), 0.1 * (3 - 1) / (8 * 0.5), 1e-12);
  auto counted = weights;
  counted.effort_token = 0;
  counted.effort_call = 0.1;
  counted.effort_turn = 0.2;
  counted.effort_q = 0;
  EXPECT_NEAR(1 - learned_reward(commit, counted), 0.1 * (0.4 + 0.6), 1e-12);
}

TEST(LearnedReward, giving_up_early_never_pays) {
  const auto failed = commit_of(0);
  EXPECT_EQ(learned_reward(failed, {.effort = 0.5}), 0);
}

}  // namespace
}  // namespace tandem::rollout
