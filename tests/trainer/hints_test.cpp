// The model as its own teacher: what it says of a sample behind a hint, and the step that is taken with it.
#include "trainer/learn/hints.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "tests/model/small_families.h"
#include "trainer/learn/algorithm_config.h"

namespace tandem::trainer::hints_tests {
namespace {

Sample sample_of(std::vector<int32_t> tokens, std::vector<uint8_t> trained) {
  Sample sample{.tokens = std::move(tokens), .trained = std::move(trained)};
  for (size_t i = 0; i < sample.tokens.size(); ++i) {
    sample.logprobs.push_back(sample.trained[i] ? -0.5f * static_cast<float>(i) : 0);
    sample.versions.push_back(7);
  }
  return sample;
}

TEST(Hints, stand_in_the_prompt_and_what_was_sampled_follows) {
  Sample sample = sample_of({1, 2, 3, 4, 5, 6}, {0, 0, 0, 1, 0, 1});
  sample.hint = {.at = 1, .replaced = 1, .tokens = {20, 21, 22}};
  const Sample hinted = behind_hint(sample);
  EXPECT_EQ(hinted.tokens, (std::vector<int32_t>{1, 20, 21, 22, 3, 4, 5, 6}));
  EXPECT_EQ(hinted.trained, (std::vector<uint8_t>{0, 0, 0, 0, 0, 1, 0, 1}));
  EXPECT_EQ(hinted.logprobs, (std::vector<float>{0, 0, 0, 0, 0, -1.5f, 0, -2.5f}));
  EXPECT_EQ(hinted.versions.size(), 8u);
  // Put in between, right before what was sampled but one.
  sample.hint = {.at = 2, .replaced = 0, .tokens = {20}};
  EXPECT_EQ(behind_hint(sample).tokens, (std::vector<int32_t>{1, 2, 20, 3, 4, 5, 6}));
}

TEST(Hints, stand_in_later_segments_that_begin_with_the_same_task) {
  Sample sample = sample_of({1, 2, 3, 4, 1, 2, 8, 5, 7, 2, 3, 6}, {0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1});
  sample.later_segments = {4, 8};
  sample.hint = {.at = 1, .replaced = 1, .tokens = {20, 21}};
  const Sample hinted = behind_hint(sample);
  EXPECT_EQ(hinted.tokens, (std::vector<int32_t>{1, 20, 21, 3, 4, 1, 20, 21, 8, 5, 7, 2, 3, 6}));
  EXPECT_EQ(hinted.later_segments, (std::vector<uint32_t>{5, 10}));
  EXPECT_EQ(hinted.trained, (std::vector<uint8_t>{0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1}));
}

// The task ended with "." alone, and in the later segment with ".\n": that segment had no hint.
TEST(Hints, stand_in_a_later_segment_whose_task_ends_with_another_token) {
  Sample sample = sample_of({1, 2, 3, 4, 1, 9, 8, 5}, {0, 0, 0, 1, 0, 0, 0, 1});
  sample.later_segments = {4};
  sample.hint = {.at = 1, .replaced = 1, .tokens = {20, 21}};
  const Sample hinted = behind_hint(sample);
  EXPECT_EQ(hinted.tokens, (std::vector<int32_t>{1, 20, 21, 3, 4, 1, 20, 21, 9, 8, 5}));
  EXPECT_EQ(hinted.trained, (std::vector<uint8_t>{0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(hinted.later_segments, (std::vector<uint32_t>{5}));
}

TEST(Hints, keep_what_tokens_were_drawn_from) {
  Sample sample = sample_of({1, 2, 3, 4}, {0, 0, 1, 1});
  sample.kept = {.vocabulary = 10, .counts = {0, 0, 2, 1}, .ids = {3, 5, 4}};
  sample.hint = {.at = 1, .replaced = 0, .tokens = {7, 7}};
  const Sample hinted = behind_hint(sample);
  EXPECT_EQ(hinted.kept.counts, (std::vector<uint32_t>{0, 0, 0, 0, 2, 1}));
  EXPECT_EQ(hinted.kept.ids, (std::vector<int32_t>{3, 5, 4}));
  EXPECT_TRUE(hinted.kept.fits(hinted.tokens));
}

model::Weights steep_weights(const model::ModelConfig& config) {
  auto weights = std::move(*model::Weights::create(config, true));
  model::randomise(weights, 1);
  for (auto& value : weights.flat()) value = kernels::to_bf16(kernels::to_float(value) * 3);
  return weights;
}

Learner learner_of(const model::ModelConfig& config, int epochs) {
  return std::move(*Learner::create(steep_weights(config), std::move(*kernels::Stream::cpu(2)),
                                    {.learning_rate = {.peak = 1e-3}, .updates = {.epochs = epochs}}));
}

std::vector<float> floats(const Learner& learner) {
  std::vector<float> all;
  for (const auto value : learner.weights().flat()) all.push_back(kernels::to_float(value));
  return all;
}

double logprob_at(Learner& learner, const std::vector<int32_t>& tokens, size_t at) {
  Sample alone{.tokens = tokens, .trained = std::vector<uint8_t>(tokens.size(), 0)};
  alone.trained[at] = 1;
  return -*learner.evaluate(std::span(&alone, 1));
}

// Two groups of three samples, of which one has no hint.
std::vector<Sample> batch() {
  Random random(5);
  std::vector<Sample> samples;
  for (uint64_t s = 0; s < 6; ++s) {
    std::vector<int32_t> tokens;
    std::vector<uint8_t> trained;
    for (int i = 0; i < 14; ++i) {
      tokens.push_back(i < 5 ? static_cast<int32_t>(3 * (s / 3) + 2) + i : static_cast<int32_t>(random.below(100)));
      trained.push_back(i >= 5 && i != 9);
    }
    samples.push_back(sample_of(std::move(tokens), std::move(trained)));
    samples.back().advantage = static_cast<double>(s % 3) - 1;
    samples.back().group = s / 3;
    if (s % 3 != 2) samples.back().hint = {.at = 3, .replaced = 1, .tokens = {40, 41, 42 + static_cast<int32_t>(s)}};
  }
  return samples;
}

// With one update, of the whole batch and several: as if somebody else had said what the model thinks behind the hint.
TEST(Hints, give_the_step_of_a_teacher_that_says_what_the_model_says_behind_them) {
  const auto config = model::small_model("qwen3");
  for (const char* text :
       {R"({"advantage": "distill"})", R"({"name": "grpo", "teacher": {"weight": 0.5, "clamp": 1}})",
        R"({"name": "reinforce++", "teacher": {"weight": 0.5}})",
        R"({"name": "grpo", "kl": {"estimator": "k3", "coefficient": 0.1}, "teacher": {"weight": 0.5}})"}) {
    for (const int epochs : {1, 2}) {
      SCOPED_TRACE(text);
      auto algorithm = *algorithm_from_json(Json::parse(text));
      Learner own = learner_of(config, epochs), other = learner_of(config, epochs);
      for (Learner* learner : {&own, &other}) ASSERT_TRUE(learner->prepare(algorithm));
      const auto samples = batch();
      auto told = samples;
      for (Sample& sample : told) {
        sample.teacher_logprobs = sample.logprobs;
        if (sample.hint.empty()) continue;
        std::vector<int32_t> hinted(sample.tokens.begin(), sample.tokens.begin() + 3);
        hinted.insert(hinted.end(), sample.hint.tokens.begin(), sample.hint.tokens.end());
        hinted.insert(hinted.end(), sample.tokens.begin() + 4, sample.tokens.end());
        for (size_t i = 1; i < sample.tokens.size(); ++i)
          if (sample.trained[i]) sample.teacher_logprobs[i] = static_cast<float>(logprob_at(other, hinted, i + 2));
        sample.hint = {};
      }
      algorithm.teacher.hint = "{feedback}";
      const auto step = own.reinforce(samples, algorithm, 7);
      ASSERT_TRUE(step) << step.error().to_string();
      algorithm.teacher.hint = "";
      algorithm.teacher.endpoint.url = "http://x/v1";
      const auto expected = other.reinforce(told, algorithm, 7);
      ASSERT_TRUE(expected) << expected.error().to_string();
      EXPECT_EQ(step->loss, expected->loss);
      EXPECT_EQ(step->grad_norm, expected->grad_norm);
      EXPECT_EQ(step->of_loss.at("teacher_kl"), expected->of_loss.at("teacher_kl"));
      EXPECT_EQ(step->compared_tokens, expected->compared_tokens)
          << "what is read behind hints is compared with nobody";
      EXPECT_NEAR(step->of_loss.at("hinted"), 4.0 / 6, 1e-12);
      EXPECT_EQ(floats(own), floats(other));
    }
  }
}

TEST(Hints, that_nobody_has_teach_nothing) {
  const auto config = model::small_model("qwen3");
  auto algorithm = *algorithm_from_json(Json::parse(R"({"name": "grpo", "teacher": {"weight": 3}})"));
  auto samples = batch();
  for (Sample& sample : samples) sample.hint = {};
  Learner own = learner_of(config, 1), other = learner_of(config, 1);
  const auto expected = other.reinforce(samples, algorithm, 7);
  algorithm.teacher.hint = "{feedback}";
  const auto step = own.reinforce(samples, algorithm, 7);
  ASSERT_TRUE(step && expected);
  EXPECT_EQ(step->of_loss.at("teacher_kl"), 0);
  EXPECT_EQ(step->of_loss.at("hinted"), 0);
  EXPECT_EQ(floats(own), floats(other));
}

}  // namespace
}  // namespace tandem::trainer::hints_tests
