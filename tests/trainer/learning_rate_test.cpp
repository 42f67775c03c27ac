#include "trainer/learn/learning_rate.h"

#include <gtest/gtest.h>

namespace tandem::trainer {
namespace {

TEST(LearningRate, rises_over_the_warmup_and_stays) {
  const LearningRate rate{.peak = 2, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(rate.at(1), 0.5);
  EXPECT_DOUBLE_EQ(rate.at(3), 1.5);
  for (const int64_t step : {4, 5, 1000000}) EXPECT_DOUBLE_EQ(rate.at(step), 2);
  EXPECT_DOUBLE_EQ(LearningRate{.peak = 3}.at(1), 3);
}

TEST(LearningRate, falls_to_its_share_at_the_last_step_and_no_further) {
  for (const Decay decay : {Decay::kLinear, Decay::kCosine}) {
    const LearningRate rate{.peak = 1, .warmup_steps = 10, .decay = decay, .steps = 110, .final_share = 0.2};
    EXPECT_DOUBLE_EQ(rate.at(10), 1);
    EXPECT_NEAR(rate.at(60), 0.6, 1e-12);
    EXPECT_NEAR(rate.at(110), 0.2, 1e-12);
    EXPECT_NEAR(rate.at(500), 0.2, 1e-12);  // a run that was made longer when it was resumed
    for (int64_t step = 11; step <= 110; ++step) EXPECT_LT(rate.at(step), rate.at(step - 1));
  }
  const LearningRate cosine{.peak = 1, .decay = Decay::kCosine, .steps = 100, .final_share = 0};
  EXPECT_GT(cosine.at(25), 0.85);
  EXPECT_LT(cosine.at(75), 0.15);
}

TEST(LearningRate, a_schedule_without_steps_is_at_its_end) {
  EXPECT_DOUBLE_EQ((LearningRate{.peak = 1, .decay = Decay::kLinear, .steps = 0, .final_share = 0.1}.at(1)), 0.1);
}

TEST(LearningRate, names) {
  EXPECT_EQ(*decay_named("cosine"), Decay::kCosine);
  EXPECT_NE(decay_named("liner").error().message().find("did you mean \"linear\""), std::string::npos);
}

}  // namespace
}  // namespace tandem::trainer
