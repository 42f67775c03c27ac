// Faults that other trainers had, each by the number of its issue, and that this one is to be without. Those that
// belong elsewhere are in docs/algorithms.md with the names of their tests.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/random.h"
#include "tests/model/small_families.h"
#include "trainer/learn/algorithm_config.h"
#include "trainer/learn/learner.h"
#include "trainer/stored_batches.h"

namespace tandem::trainer::bugs_of_others_tests {
namespace {

model::Weights weights(uint64_t seed, bool for_training) {
  auto weights = std::move(*model::Weights::create(model::small_model("qwen3"), for_training));
  model::randomise(weights, seed);
  for (auto& value : weights.flat()) value = kernels::to_bf16(kernels::to_float(value) * 3);
  return weights;
}

Learner learner(const OptimizerSettings& settings) {
  return std::move(*Learner::create(weights(1, true), std::move(*kernels::Stream::cpu(2)), settings));
}

// Three groups of three samples, of 5 to 13 tokens behind a prompt of four.
std::vector<Sample> batch() {
  Random random(3);
  std::vector<Sample> samples;
  for (uint64_t s = 0; s < 9; ++s) {
    Sample sample{.advantage = static_cast<double>(s % 3) - 1, .group = s / 3};
    for (int i = 0; i < 9 + static_cast<int>(s); ++i) {
      sample.tokens.push_back(i < 4 ? static_cast<int32_t>(2 + s / 3) + i : static_cast<int32_t>(random.below(100)));
      sample.trained.push_back(i >= 4);
      sample.logprobs.push_back(i >= 4 ? -static_cast<float>(random.below(40)) / 10 : 0);
      sample.versions.push_back(3);
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

// slime 2234: rewards paired with the samples of another rank.
TEST(BugsOfOthers, advantages_are_of_the_episodes_that_earned_them_in_whatever_order_they_are_named) {
  const fs::path folder = fs::temp_directory_path() / ("tandem-own-rewards-" + std::to_string(::getpid()));
  fs::remove_all(folder);
  auto store = rollout::TrajectoryStore::open(folder);
  ASSERT_TRUE(store) << store.error().to_string();
  constexpr uint64_t kEpisodes = 12;
  for (uint64_t i = 0; i < kEpisodes; ++i) {  // the last comes first
    rollout::Trajectory trajectory{.key = {.episode = kEpisodes - i, .attempt = 1}, .group = i / 4};
    trajectory.append(std::vector<int32_t>{1, 2});
    trajectory.append_sampled(static_cast<int32_t>(kEpisodes - i), -0.5f, 0);
    ASSERT_TRUE(store->append(trajectory));
  }
  Batch ordered{.step = 1, .entries = {}};
  for (uint64_t i = 0; i < kEpisodes; ++i) {
    const uint64_t episode = 1 + (i * 5) % kEpisodes;
    auto& entry = ordered.entries.emplace_back();
    entry.key = {episode, 1};
    entry.advantage = static_cast<double>(episode) / 8;
    entry.turn_rewards = {static_cast<double>(episode)};
    entry.metrics = {{"turns", static_cast<double>(episode)}};
  }
  const Loaded loaded = load(*store, ordered, Algorithm());
  ASSERT_EQ(loaded.samples.size(), kEpisodes);
  for (const Sample& sample : loaded.samples) {
    const auto episode = static_cast<double>(sample.tokens.back());  // that sampled it
    EXPECT_EQ(sample.advantage, episode / 8);
    EXPECT_EQ(sample.turn_rewards, std::vector<double>{episode});
    EXPECT_EQ(sample.metrics.at("turns"), episode);
    EXPECT_EQ(sample.group, (kEpisodes - static_cast<uint64_t>(episode)) / 4);
  }
  fs::remove_all(folder);
}

// verl 7225, and the accumulation of gradients in other trainers before: a loss divided by its micro-batch.
TEST(BugsOfOthers, a_loss_is_divided_by_its_batch_however_that_is_cut_into_passes) {
  for (const char* text :
       {R"({"name": "grpo"})", R"({"name": "dr_grpo", "aggregation": "sum_over_length", "aggregation_length": 9})",
        R"({"name": "gspo"})", R"({"name": "grpo", "aggregation": "seq_mean_token_sum"})",
        R"({"advantage": "distill"})", R"({"name": "reinforce++"})"}) {
    SCOPED_TRACE(text);
    auto algorithm = *algorithm_from_json(Json::parse(text));
    auto samples = batch();
    if (algorithm.advantage == AdvantageKind::kDistill) {
      algorithm.teacher.endpoint.url = "http://x/v1";
      for (Sample& sample : samples) sample.teacher_logprobs.assign(sample.tokens.size(), -1.5f);
    }
    std::map<int, StepMetrics> of_passes;
    for (const int tokens : {18, 60, 4096}) {
      Learner own = learner({.learning_rate = {.peak = 1e-3}, .max_pass_tokens = tokens});
      auto step = own.reinforce(samples, algorithm, 3);
      ASSERT_TRUE(step) << step.error().to_string();
      of_passes[tokens] = std::move(*step);
    }
    const StepMetrics& whole = of_passes[4096];
    EXPECT_LT(whole.tree_tokens, of_passes[18].tree_tokens) << "more passes share fewer prefixes";
    for (const int tokens : {18, 60}) {
      EXPECT_NEAR(of_passes[tokens].loss, whole.loss, 1e-9 * std::max(1.0, std::abs(whole.loss))) << tokens;
      EXPECT_NEAR(of_passes[tokens].grad_norm, whole.grad_norm, 1e-3 * whole.grad_norm) << tokens;
    }
  }
}

// Schedules that begin anew where training goes on.
TEST(BugsOfOthers, a_schedule_goes_on_where_training_does) {
  const fs::path folder = fs::temp_directory_path() / ("tandem-schedule-" + std::to_string(::getpid()));
  const OptimizerSettings settings{
      .learning_rate = {.peak = 1e-3, .warmup_steps = 3, .decay = Decay::kLinear, .steps = 8, .final_share = 0.1}};
  const auto algorithm = *algorithm_from_json({{"name", "grpo"}});
  const auto samples = batch();
  std::vector<double> whole, parted;
  Learner first = learner(settings);
  for (int step = 0; step < 6; ++step) {
    whole.push_back(first.reinforce(samples, algorithm, 3)->learning_rate);
    Learner next = learner(settings);
    if (step > 0) {
      ASSERT_TRUE(next.load(folder).ok());
    }
    parted.push_back(next.reinforce(samples, algorithm, 3)->learning_rate);
    ASSERT_TRUE(next.save(folder).ok());
  }
  EXPECT_EQ(parted, whole);
  EXPECT_LT(whole[0], whole[2]);
  EXPECT_LT(whole[5], whole[2]);
  fs::remove_all(folder);
}

// slime 2247: the bound of dual clipping was read and not passed on.
TEST(BugsOfOthers, the_bound_of_dual_clipping_in_a_config_reaches_the_step_of_the_run_and_of_its_parts) {
  AlgorithmConfig config;
  config.name = "grpo";
  config.dual_clip = 1.5;
  config.kinds = {"a=grpo dual_clip=1.25"};
  const auto algorithm = algorithm_of(config);
  ASSERT_TRUE(algorithm) << algorithm.error().to_string();
  EXPECT_EQ(algorithm->dual_clip, 1.5);
  ASSERT_EQ(algorithm->parts.size(), 1u);
  EXPECT_EQ(algorithm->parts[0].dual_clip, 1.25);
  Algorithm unbounded = *algorithm;
  unbounded.dual_clip = 0;
  // Ratios above the bound, of a bad sample.
  auto samples = batch();
  for (Sample& sample : samples) {
    sample.advantage = -1;
    for (size_t i = 4; i < sample.tokens.size(); ++i) sample.logprobs[i] = -20;
  }
  Learner with = learner({}), without = learner({});
  const auto bounded = with.reinforce(samples, *algorithm, 3), free = without.reinforce(samples, unbounded, 3);
  ASSERT_TRUE(bounded && free);
  EXPECT_NEAR(bounded->loss, 1.5, 1e-9) << "each token's loss is held at the bound";
  EXPECT_GT(free->loss, 100);
}

// slime 2085: the teacher's logprobs at another temperature than the policy's.
TEST(BugsOfOthers, a_teacher_is_read_at_the_temperature_of_the_policy) {
  for (const float temperature : {0.6f, 1.7f}) {
    const OptimizerSettings settings{.logit_scale = kernels::logit_scale_at(temperature)};
    const auto algorithm = *algorithm_from_json({{"advantage", "distill"}});
    Learner own = learner(settings);
    auto samples = batch();
    for (Sample& sample : samples) {
      sample.advantage = 0;  // rewards teach nothing here
      for (size_t i = 4; i < sample.tokens.size(); ++i) {
        Sample alone = sample;
        std::ranges::fill(alone.trained, uint8_t{0});
        alone.trained[i] = 1;
        sample.logprobs[i] = static_cast<float>(-*own.evaluate(std::span(&alone, 1)));
      }
    }
    ASSERT_TRUE(own.keep_teacher(weights(1, false)));
    const auto step = own.reinforce(samples, algorithm, 3);
    ASSERT_TRUE(step) << step.error().to_string();
    EXPECT_EQ(step->of_loss.at("teacher_kl"), 0) << "the same weights say the same";
    EXPECT_EQ(step->grad_norm, 0);
  }
}

}  // namespace
}  // namespace tandem::trainer::bugs_of_others_tests
