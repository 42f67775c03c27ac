// The entropy that is held up: the coefficient over steps, the gradient, and steps that are taken with it.
#include "trainer/learn/entropy_control.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "tests/model/small_families.h"
#include "trainer/learn/algorithm_config.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer::entropy_control_tests {
namespace {

constexpr EntropyTarget kTarget{.target = 1, .step = 0.25, .most = 0.6};

TEST(EntropyControl, grows_below_the_target_and_shrinks_above_between_nothing_and_the_most) {
  EntropyControl control;
  EXPECT_EQ(control.bonus(kTarget).coefficient, 0) << "no entropy is known";
  std::vector<double> coefficients;
  for (const double entropy : {0.9, 0.8, 0.7, 1.2, 1.3, 0.9, 1.1, 1.1, 1.0, 0.0}) {
    control.add(entropy, kTarget);
    coefficients.push_back(control.bonus(kTarget).coefficient);
  }
  // Above the target there is none, and what comes after it goes on from what it has shrunk to.
  const std::vector<double> expected = {0.25, 0.5, 0.6, 0, 0, 0.35, 0, 0, 0, 0};
  ASSERT_EQ(coefficients.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(coefficients[i], expected[i], 1e-12) << i;
  control.add(0.5, kTarget);
  EXPECT_EQ(control.bonus(kTarget).entropy, 0.5);
  EXPECT_EQ(control.bonus({}).coefficient, 0) << "without a target there is none";
  EXPECT_EQ(control.bonus({.target = 1, .most = 0.01}).coefficient, 0.01) << "of a run that goes on with less";
  control.add(0.5, {});
  EXPECT_TRUE(control.state().is_null()) << "a target that comes later begins anew";
}

TEST(EntropyControl, goes_on_from_its_state) {
  EntropyControl control, other;
  EXPECT_TRUE(control.state().is_null());
  EXPECT_TRUE(other.restore(control.state()).ok());
  control.add(0.9, kTarget);
  control.add(0.8, kTarget);
  ASSERT_TRUE(other.restore(*parse_json(control.state().dump())).ok());
  EXPECT_EQ(other.bonus(kTarget).coefficient, control.bonus(kTarget).coefficient);
  EXPECT_EQ(other.bonus(kTarget).entropy, 0.8);
  for (const char* wrong : {"1", "[]", "{}", R"({"coefficient": 1})", R"({"coefficient": "1", "entropy": 1})",
                            R"({"coefficient": -1, "entropy": 1})"}) {
    EXPECT_EQ(other.restore(Json::parse(wrong)).code(), Code::kCorrupt) << wrong;
  }
}

// The mean over what the policy draws, each token as often as it is likely, is the derivative of the entropy.
TEST(EntropyBonus, has_the_gradient_of_the_entropy_whatever_it_is_measured_from) {
  const std::vector<double> logits = {0.3, -1.2, 2.1, 0.0, -0.4};
  double sum = 0;
  for (const double z : logits) sum += std::exp(z);
  std::vector<double> logprobs;
  double entropy = 0;
  for (const double z : logits) {
    logprobs.push_back(z - std::log(sum));
    entropy -= std::exp(logprobs.back()) * logprobs.back();
  }
  for (const double base : {0.0, entropy, 7.0}) {
    const EntropyBonus bonus{.coefficient = 0.3, .entropy = base};
    std::vector<double> by_logit(logits.size(), 0);
    for (size_t token = 0; token < logits.size(); ++token) {
      double gradient = 0;
      bonus.add(std::span(&logprobs[token], 1), {}, 1, std::span(&gradient, 1));
      for (size_t v = 0; v < logits.size(); ++v)
        by_logit[v] += std::exp(logprobs[token]) * gradient * ((v == token ? 1 : 0) - std::exp(logprobs[v]));
    }
    // dH/dz = -p (l + H)
    for (size_t v = 0; v < logits.size(); ++v)
      EXPECT_NEAR(by_logit[v], 0.3 * std::exp(logprobs[v]) * (logprobs[v] + entropy), 1e-12) << base;
  }
}

TEST(EntropyBonus, weighs_tokens_and_is_added_to_what_there_is) {
  const EntropyBonus bonus{.coefficient = 2, .entropy = 1};
  std::vector<double> gradients = {10, 20};
  const std::vector<double> logprobs = {-3, -0.5}, weights = {1, 0.5};
  bonus.add(logprobs, weights, 8, gradients);
  EXPECT_DOUBLE_EQ(gradients[0], 10 + 2 * -2.0 / 8);
  EXPECT_DOUBLE_EQ(gradients[1], 20 + 2 * 0.5 * 0.5 / 8);
}

class EntropyOfLearner : public testing::Test {
 protected:
  static Learner learner(int epochs = 1) {
    auto weights = std::move(*model::Weights::create(config(), true));
    model::randomise(weights, 1);
    for (auto& value : weights.flat()) value = kernels::to_bf16(kernels::to_float(value) * 3);
    return std::move(*Learner::create(std::move(weights), std::move(*kernels::Stream::cpu(2)),
                                      {.learning_rate = {.peak = 1e-3}, .updates = {.epochs = epochs}}));
  }
  static model::ModelConfig config() { return model::small_model("qwen3"); }
  static std::vector<float> floats(const Learner& learner) {
    std::vector<float> all;
    for (const auto value : learner.weights().flat()) all.push_back(kernels::to_float(value));
    return all;
  }
  // Two groups of three samples, whose sampler said what the learner says now.
  static std::vector<Sample> batch(Learner& learner) {
    Random random(5);
    std::vector<Sample> samples;
    for (uint64_t s = 0; s < 6; ++s) {
      Sample sample;
      for (int i = 0; i < 12; ++i) {
        sample.tokens.push_back(i < 4 ? static_cast<int32_t>(3 * (s / 3) + 2) + i
                                      : static_cast<int32_t>(random.below(100)));
        sample.trained.push_back(i >= 4 && i != 8);
        sample.versions.push_back(7);
      }
      sample.logprobs.assign(sample.tokens.size(), 0);
      sample.advantage = static_cast<double>(s % 3) - 1;
      sample.group = s / 3;
      for (size_t i = 0; i < sample.tokens.size(); ++i) {
        if (!sample.trained[i]) continue;
        Sample alone = sample;
        std::ranges::fill(alone.trained, uint8_t{0});
        alone.trained[i] = 1;
        sample.logprobs[i] = static_cast<float>(-*learner.evaluate(std::span(&alone, 1)));
      }
      samples.push_back(std::move(sample));
    }
    return samples;
  }
};

// What a teacher adds to an advantage is held constant, so one that says l - c (l + e) / weight gives the same step.
TEST_F(EntropyOfLearner, the_bonus_is_an_advantage_of_unlikely_tokens) {
  for (const char* name : {"grpo", "reinforce++"}) {
    SCOPED_TRACE(name);
    auto plain = *algorithm_from_json({{"name", name}, {"aggregation", "token_mean"}});
    auto held = plain;
    held.entropy_target = {.target = 50, .step = 0.25};
    Learner own = learner(), other = learner();
    const auto first = batch(own);
    const auto step = own.reinforce(first, held, 7);
    ASSERT_TRUE(step) << step.error().to_string();
    ASSERT_TRUE(other.reinforce(first, plain, 7));
    EXPECT_EQ(step->of_loss.at("entropy_coefficient"), 0);
    EXPECT_EQ(floats(own), floats(other)) << "before the first step no entropy is known";
    const auto second = batch(own);
    auto told = second;
    for (Sample& sample : told) {
      sample.teacher_logprobs = sample.logprobs;
      for (size_t i = 0; i < sample.tokens.size(); ++i)
        if (sample.trained[i])
          sample.teacher_logprobs[i] -= static_cast<float>(0.25 * (sample.logprobs[i] + step->entropy));
    }
    plain.teacher.endpoint.url = "http://x/v1";
    const auto with = own.reinforce(second, held, 7), expected = other.reinforce(told, plain, 7);
    ASSERT_TRUE(with && expected);
    EXPECT_EQ(with->of_loss.at("entropy_coefficient"), 0.25);
    EXPECT_NEAR(with->grad_norm, expected->grad_norm, 1e-4 * expected->grad_norm);
  }
}

TEST_F(EntropyOfLearner, goes_on_from_a_checkpoint_with_the_same_bits_in_every_kind_of_step) {
  const fs::path folder = fs::temp_directory_path() / ("tandem-entropy-" + std::to_string(::getpid()));
  for (const char* text : {R"({"name": "grpo"})", R"({"name": "reinforce++"})", R"({"name": "clip_cov"})"}) {
    for (const int epochs : {1, 2}) {
      SCOPED_TRACE(text);
      auto algorithm = *algorithm_from_json(Json::parse(text));
      algorithm.entropy_target = {.target = 50, .step = 0.5};
      Learner whole = learner(epochs), plain = learner(epochs);
      const auto samples = batch(whole);
      ASSERT_TRUE(whole.reinforce(samples, algorithm, 7));
      ASSERT_TRUE(whole.save(folder).ok());
      Learner later = learner(epochs);
      ASSERT_TRUE(later.load(folder).ok());
      const auto step = whole.reinforce(samples, algorithm, 7), again = later.reinforce(samples, algorithm, 7);
      ASSERT_TRUE(step && again);
      EXPECT_EQ(step->of_loss.at("entropy_coefficient"), 0.5);
      EXPECT_EQ(again->of_loss.at("entropy_coefficient"), 0.5);
      EXPECT_EQ(floats(whole), floats(later));
      algorithm.entropy_target = {};
      for (int i = 0; i < 2; ++i) ASSERT_TRUE(plain.reinforce(samples, algorithm, 7));
      EXPECT_NE(floats(whole), floats(plain)) << "the bonus is in the gradient";
    }
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tandem::trainer::entropy_control_tests
