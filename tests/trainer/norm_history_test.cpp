// Updates whose gradient is a spike are left out: which they are, and what becomes of the step.
#include "trainer/learn/norm_history.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/random.h"
#include "tests/envs/scratch.h"
#include "trainer/learn/algorithm_config.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {
namespace {

TEST(NormHistory, a_spike_is_above_so_many_medians_of_enough_norms) {
  NormHistory history;
  for (int i = 0; i < 7; ++i) history.add(1);
  EXPECT_FALSE(history.is_spike(1e9, 5)) << "too few are known";
  history.add(100);
  EXPECT_FALSE(history.is_spike(5, 5));
  EXPECT_TRUE(history.is_spike(5.1, 5)) << "the median does not see one that is large";
}

TEST(NormHistory, what_stays_large_is_usual_after_some_steps) {
  NormHistory history;
  for (int i = 0; i < 40; ++i) history.add(1);
  int skipped = 0;
  while (history.is_spike(50, 5)) {
    history.add(50);
    ++skipped;
    ASSERT_LT(skipped, 40);
  }
  EXPECT_EQ(skipped, 16);
  EXPECT_EQ(history.norms().size(), NormHistory::kKept);
}

TEST(NormHistory, comes_back_as_it_was) {
  NormHistory history, other;
  for (int i = 0; i < 50; ++i) history.add(i / 3.0);
  other.restore(history.norms());
  EXPECT_EQ(other.norms(), history.norms());
  other.restore({});
  EXPECT_FALSE(other.is_spike(1e9, 2));
}

class SkippedSpikes : public testing::Test {
 protected:
  static Learner learner(OptimizerSettings settings) {
    model::ModelConfig config;
    config.family = "llama";
    config.layers = 1;
    config.width = 64;
    config.heads = 1;
    config.kv_heads = 1;
    config.head_size = 64;
    config.mlp_width = 64;
    config.vocabulary = 50;
    config.max_positions = 64;
    config.tied_embeddings = true;
    config.dtype = model::DType::kBF16;
    auto weights = std::move(*model::Weights::create(config, true));
    model::randomise(weights, 1);
    settings.learning_rate = {.peak = 1e-4};
    settings.max_pass_tokens = 40;
    settings.skip_spikes = 5;
    return std::move(*Learner::create(std::move(weights), std::move(*kernels::Stream::cpu(1)), settings));
  }

  static std::vector<Sample> samples(double scale) {
    Random random(3);
    std::vector<Sample> samples;
    for (uint64_t i = 0; i < 6; ++i) {
      Sample sample{.advantage = scale * (i % 2 == 0 ? 1 : -1), .group = i / 2};
      for (int at = 0; at < 12; ++at) sample.tokens.push_back(static_cast<int32_t>(random.below(50)));
      for (size_t at = 0; at < sample.tokens.size(); ++at) sample.trained.push_back(at >= 5);
      sample.versions.assign(sample.tokens.size(), 0);
      sample.logprobs.assign(sample.tokens.size(), -4);
      samples.push_back(std::move(sample));
    }
    return samples;
  }

  static std::vector<kernels::bf16> weights_of(const Learner& learner) {
    const auto flat = learner.weights().flat();
    return {flat.begin(), flat.end()};
  }
};

bool are_equal(const std::vector<kernels::bf16>& a, const std::vector<kernels::bf16>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
}

// By samples alone, with a critic, and with several updates; of all weights and of LoRA's factors.
TEST_F(SkippedSpikes, leave_the_weights_and_are_counted) {
  OptimizerSettings lora, several;
  lora.low_rank = {.rank = 4, .alpha = 8};
  several.updates = {.epochs = 1, .minibatches = 3, .seed = 2};
  for (const OptimizerSettings& settings : {OptimizerSettings{}, lora, several}) {
    // Whitened advantages would be as large as before.
    for (const char* name : {R"({"name": "dr_grpo"})", R"({"name": "ppo", "whiten_advantages": false})"}) {
      const Algorithm algorithm = *algorithm_from_json(Json::parse(name));
      Learner one = learner(settings);
      ASSERT_TRUE(one.prepare(algorithm));
      uint64_t version = 0;
      for (; version < 10; ++version) {
        const auto step = one.reinforce(samples(1), algorithm, version);
        ASSERT_TRUE(step) << step.error().to_string();
        ASSERT_EQ(step->skipped_spikes, 0) << version;
      }
      const auto before = weights_of(one);
      const auto spike = one.reinforce(samples(1000), algorithm, version++);
      ASSERT_TRUE(spike) << spike.error().to_string();
      EXPECT_EQ(spike->skipped_spikes, settings.updates.minibatches) << name;
      EXPECT_TRUE(are_equal(weights_of(one), before)) << name;
      EXPECT_EQ(one.steps(), 11);
      const auto after = one.reinforce(samples(1), algorithm, version);
      ASSERT_TRUE(after);
      EXPECT_EQ(after->skipped_spikes, 0) << "its gradient has nothing of the one that was left out";
      EXPECT_LT(after->grad_norm, spike->grad_norm / 5);
      EXPECT_FALSE(are_equal(weights_of(one), before));
    }
  }
}

TEST_F(SkippedSpikes, are_the_same_after_a_resume) {
  const envs::Scratch scratch;
  const fs::path folder = scratch.path / "checkpoint";
  const Algorithm algorithm = *algorithm_named("dr_grpo");
  Learner one = learner({});
  for (uint64_t version = 0; version < 10; ++version) ASSERT_TRUE(one.reinforce(samples(1), algorithm, version));
  ASSERT_TRUE(one.save(folder));
  Learner other = learner({});
  ASSERT_TRUE(other.load(folder));
  EXPECT_EQ(other.reinforce(samples(1000), algorithm, 10)->skipped_spikes, 1);
  EXPECT_EQ(one.reinforce(samples(1000), algorithm, 10)->skipped_spikes, 1);
  ASSERT_TRUE(one.reinforce(samples(1), algorithm, 11));
  ASSERT_TRUE(other.reinforce(samples(1), algorithm, 11));
  EXPECT_TRUE(are_equal(weights_of(one), weights_of(other)));
}

}  // namespace
}  // namespace tandem::trainer
