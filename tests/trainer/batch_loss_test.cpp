#include "trainer/learn/batch_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trainer/learn/algorithm_config.h"

namespace tandem::trainer {
namespace {

using testing::HasSubstr;

LossBatch small_batch() {
  return {.rows = 2,
          .length = 3,
          .logprobs = {-0.5, -1, -2, -0.1, -3, -0.7},
          .mask = {1, 1, 0, 1, 1, 1},
          .old_logprobs = {-0.6, -1, -2, -0.1, -2.5, -0.9},
          .rewards = {0, 1, 0, 0, 0, 0},
          .groups = {1, 1}};
}
Algorithm named(std::string_view name) { return *algorithm_named(name); }

TEST(BatchLoss, the_gradient_is_that_of_finite_differences) {
  for (const char* name : {"grpo", "dapo", "rloo", "gspo", "sapo", "gmpo", "kl_cov", "opo", "maxrl"}) {
    Algorithm algorithm = named(name);
    algorithm.clip_low = algorithm.clip_high = 0.9;  // no corner within the step
    const LossBatch batch = small_batch();
    const auto result = batch_loss(batch, algorithm);
    ASSERT_TRUE(result.has_value()) << result.error().to_string();
    for (size_t i = 0; i < batch.logprobs.size(); ++i) {
      constexpr double kStep = 1e-6;
      LossBatch up = batch, down = batch;
      up.logprobs[i] += kStep;
      down.logprobs[i] -= kStep;
      const double difference = (batch_loss(up, algorithm)->loss - batch_loss(down, algorithm)->loss) / (2 * kStep);
      EXPECT_NEAR(result->grad_logprobs[i], difference, 1e-7) << name << " " << i;
    }
  }
}

TEST(BatchLoss, tokens_that_do_not_count_change_nothing) {
  const Algorithm algorithm = named("reinforce++");
  const LossBatch batch = small_batch();
  LossBatch other = batch;
  other.logprobs[2] = -9;
  other.old_logprobs[2] = 0;
  const auto a = batch_loss(batch, algorithm), b = batch_loss(other, algorithm);
  EXPECT_EQ(a->loss, b->loss);
  EXPECT_EQ(a->grad_logprobs, b->grad_logprobs);
  EXPECT_EQ(a->grad_logprobs[2], 0);
  EXPECT_EQ(a->advantages[2], 0);
}

TEST(BatchLoss, what_is_dropped_stays_in_the_denominator) {
  Algorithm algorithm = named("grpo");
  LossBatch batch = small_batch();
  batch.rollout_logprobs = batch.old_logprobs;
  const auto whole = batch_loss(batch, algorithm);
  algorithm.correction = {.kind = Correction::Kind::kMis, .low = 0.5, .high = 2};
  batch.rollout_logprobs[4] += 5;
  const auto dropped = batch_loss(batch, algorithm);
  ASSERT_TRUE(dropped.has_value()) << dropped.error().to_string();
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(dropped->grad_logprobs[i], i == 4 ? 0 : whole->grad_logprobs[i]) << i;
  EXPECT_DOUBLE_EQ(dropped->metrics.at("dropped_fraction"), 0.2);
}

TEST(BatchLoss, a_correction_that_would_count_twice_is_refused) {
  Algorithm algorithm = named("grpo");
  algorithm.correction.kind = Correction::Kind::kTis;
  LossBatch batch = small_batch();
  batch.rollout_logprobs = std::exchange(batch.old_logprobs, {});
  EXPECT_THAT(batch_loss(batch, algorithm).error().message(), HasSubstr("count the difference twice"));
  batch.old_logprobs = batch.rollout_logprobs;
  EXPECT_TRUE(batch_loss(batch, algorithm).has_value());
  algorithm = named("dppo");
  algorithm.correction.kind = Correction::Kind::kTis;
  EXPECT_THAT(batch_loss(batch, algorithm).error().message(), HasSubstr("count the difference twice"));
}

TEST(BatchLoss, what_is_missing_is_named) {
  LossBatch batch = small_batch();
  batch.groups.clear();
  EXPECT_THAT(batch_loss(batch, named("grpo")).error().message(), HasSubstr("\"groups\""));
  EXPECT_THAT(batch_loss(batch, named("ppo")).error().message(), HasSubstr("\"values\""));
  Algorithm algorithm = named("rloo");
  algorithm.kl = {.estimator = Kl::Estimator::kK3, .coefficient = 0.1};
  EXPECT_THAT(batch_loss(batch, algorithm).error().message(), HasSubstr("\"ref_logprobs\""));
  batch.rewards.clear();
  EXPECT_THAT(batch_loss(batch, named("rloo")).error().message(), HasSubstr("rewards"));
}

TEST(Algorithm, every_key_has_a_default_and_is_checked) {
  for (const std::string_view name : algorithm_names()) {
    if (name == "torch") continue;  // which needs a file
    EXPECT_TRUE(algorithm_from_json({{"name", name}}).has_value()) << name;
  }
  const auto wrong = [](const Json& json) { return algorithm_from_json(json).error().message(); };
  EXPECT_THAT(wrong({{"name", "gpro"}}), HasSubstr("did you mean \"grpo\""));
  EXPECT_THAT(wrong({{"clip_low", "0.2"}}), HasSubstr("algorithm.clip_low is \"0.2\", not a number"));
  EXPECT_THAT(wrong({{"cliplow", 0.2}}), HasSubstr("did you mean \"clip_low\""));
  EXPECT_THAT(wrong({{"kl", {{"estimator", "k4"}}}}), HasSubstr("algorithm.kl.estimator \"k4\" is not known"));
  EXPECT_THAT(wrong({{"kl", 1}}), HasSubstr("algorithm.kl is 1, not an object"));
  EXPECT_THAT(wrong({{"correction", {{"kind", "tis"}, {"low", 3}}}}), HasSubstr("is above"));
  EXPECT_THAT(wrong({{"aggregation", "sum_over_length"}}), HasSubstr("aggregation_length"));
  EXPECT_THAT(wrong({{"name", "sapo"}, {"sapo", {{"tau_positive", 0}}}}),
              HasSubstr("algorithm.sapo.tau_positive is 0"));
  EXPECT_THAT(wrong({{"name", "torch"}}), HasSubstr("algorithm.script or algorithm.library"));
  EXPECT_THAT(wrong({{"name", "torch"}, {"script", "a"}, {"library", "b"}}), HasSubstr("one of them"));
  EXPECT_THAT(wrong({{"name", "grpo"}, {"script", "a"}}), HasSubstr("are of torch"));
  EXPECT_THAT(wrong({{"name", "torch"}, {"script", "a"}, {"options", "b=1"}}), HasSubstr("not a list of texts"));
  EXPECT_THAT(wrong({{"name", "torch"}, {"script", "a"}, {"entropy", {{"coefficient", 1}}}}), HasSubstr("has its own"));
}

}  // namespace
}  // namespace tandem::trainer
