#include "trainer/learn/reward_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/json.h"
#include "trainer/learn/value_head.h"

namespace tandem::trainer {
namespace {

// TRL's formula in Python's float64, with gradients by complex steps: tests/golden/make_reward_losses.py.
TEST(RewardLoss, has_the_value_and_the_gradients_of_trl) {
  std::ifstream lines(TANDEM_SOURCE_DIR "/tests/golden/reward_losses.jsonl");
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json json = *parse_json(line);
    SCOPED_TRACE(count);
    const auto near = [](double got, double wanted) { EXPECT_NEAR(got, wanted, 1e-12 * (1 + std::abs(wanted))); };
    const auto numbers = json["head"].get<std::vector<float>>();
    const size_t width = numbers.size() - 1;
    auto head = std::move(*ValueHead::create(static_cast<int>(width), 1e-3, HeadKind::kReward));
    head.set(numbers);
    std::vector<std::vector<float>> states;
    std::vector<double> rewards;
    for (const Json& state : json["states"]) {
      states.push_back(state.get<std::vector<float>>());
      rewards.push_back(head.value(states.back()));
      near(rewards.back(), json["rewards"][rewards.size() - 1].get<double>());
    }
    const auto got =
        reward_loss(rewards, json["margins"].get<std::vector<double>>(), {.center = json["center"].get<double>()});
    near(got.loss, json["value"].get<double>());
    std::vector<double> by_head(head.elements(), 0);
    ASSERT_EQ(got.gradients.size(), rewards.size());
    for (size_t i = 0; i < rewards.size(); ++i) {
      near(got.gradients[i], json["by_rewards"][i].get<double>());
      head.add_gradient(states[i], got.gradients[i], by_head);
      std::vector<float> by_state(width, 0);
      head.add_to_state(got.gradients[i], by_state);
      for (size_t k = 0; k < width; ++k) {
        const double wanted = json["by_states"][i][k].get<double>();
        EXPECT_NEAR(by_state[k], wanted, 1e-7 * (1e-3 + std::abs(wanted))) << "fp32";
      }
    }
    for (size_t k = 0; k <= width; ++k) near(by_head[k], json["by_head"][k].get<double>());
  }
  EXPECT_EQ(count, 24);
}

TEST(RewardLoss, counts_pairs_whose_chosen_answer_has_the_higher_reward) {
  const std::vector<double> rewards = {2, 1, -1, 1, 3, 3, 0, -4}, margins = {0, 0, 0, 9};
  const auto got = reward_loss(rewards, margins, {});
  EXPECT_EQ(got.accuracy, (1 + 0 + 0.5 + 1) / 4);
  EXPECT_EQ(got.chosen_reward, 1);
  EXPECT_EQ(got.rejected_reward, 0.25);
  EXPECT_EQ(got.margin, 0.75);
  EXPECT_EQ(got.mean_reward(), 0.625);
}

TEST(RewardLoss, stays_finite_however_far_apart_rewards_are) {
  const std::vector<double> rewards = {1e6, -1e6, -1e6, 1e6}, margins = {0, 0};
  const auto got = reward_loss(rewards, margins, {});
  EXPECT_EQ(got.loss, 1e6);
  EXPECT_EQ(got.gradients, (std::vector<double>{0, 0, -0.5, 0.5}));
}

}  // namespace
}  // namespace tandem::trainer
