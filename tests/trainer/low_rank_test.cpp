#include "trainer/learn/low_rank.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "base/random.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {
namespace {

model::Weights small_weights(bool experts = false) {
  model::ModelConfig config;
  config.family = experts ? "qwen3_moe" : "llama";
  config.layers = 2;
  config.width = 66;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_size = 64;
  config.mlp_width = 50;
  config.vocabulary = 50;
  config.max_positions = 64;
  config.tied_embeddings = true;
  config.dtype = model::DType::kBF16;
  if (experts) config.experts = {.count = 3, .top_k = 2, .width = 34};
  auto weights = std::move(*model::Weights::create(config, true));
  model::randomise(weights, 5);
  return weights;
}

kernels::Stream stream_of(int threads) { return std::move(*kernels::Stream::cpu(threads)); }

std::vector<float> normal(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.normal());
  return values;
}

Learner learner_of(const LowRankSettings& low_rank, int threads = 1) {
  return std::move(
      *Learner::create(small_weights(), stream_of(threads), {.learning_rate = {.peak = 1e-2}, .low_rank = low_rank}));
}

std::vector<Sample> demonstrations() {
  Random random(9);
  std::vector<Sample> samples(3);
  for (Sample& sample : samples) {
    for (int i = 0; i < 20; ++i) sample.tokens.push_back(static_cast<int32_t>(random.below(50)));
    sample.trained.assign(20, 1);
  }
  return samples;
}

TEST(LowRank, passes_gradients_on_by_the_chain_rule) {
  const auto weights = small_weights();
  auto low_rank = std::move(*LowRank::create(weights, {.rank = 3, .alpha = 5, .targets = {"k_proj", "down_proj"}}));
  const auto factors = normal(low_rank.elements(), 1);
  const auto weight_grads = normal(weights.layout().elements, 2);
  std::vector<float> grads(low_rank.elements(), 7.0f), others(low_rank.elements());
  const auto of = [](const std::vector<float>& values) { return model::slice_of("factors", std::span(values)); };
  auto one = stream_of(1), three = stream_of(3);
  ASSERT_TRUE(low_rank.pass_on(one, of(factors), of(weight_grads), model::slice_of("gradients", std::span(grads))));
  ASSERT_TRUE(low_rank.pass_on(three, of(factors), of(weight_grads), model::slice_of("gradients", std::span(others))));
  EXPECT_EQ(grads, others);
  size_t at = 0;
  for (const auto& [name, matrix] : model::matrices_of(weights.layout())) {
    if (!name.ends_with("k_proj.weight") && !name.ends_with("down_proj.weight")) continue;
    const size_t a = at, b = a + size_t{3} * matrix.columns;
    at = b + size_t{3} * matrix.rows;
    for (int r = 0; r < 3; ++r) {
      for (int c = 0; c < matrix.columns; ++c) {
        double sum = 0;
        for (int row = 0; row < matrix.rows; ++row)
          sum += double{factors[b + row * 3 + r]} * weight_grads[matrix.offset + size_t(row) * matrix.columns + c];
        EXPECT_NEAR(grads[a + size_t(r) * matrix.columns + c], 5.0 / 3 * sum, 1e-4);
      }
      for (int row = 0; row < matrix.rows; ++row) {
        double sum = 0;
        for (int c = 0; c < matrix.columns; ++c)
          sum += double{factors[a + size_t(r) * matrix.columns + c]} *
                 weight_grads[matrix.offset + size_t(row) * matrix.columns + c];
        EXPECT_NEAR(grads[b + row * 3 + r], 5.0 / 3 * sum, 1e-4);
      }
    }
  }
  EXPECT_EQ(at, low_rank.elements());
}

TEST(LowRank, begins_with_the_model_as_it_is) {
  const auto before = small_weights();
  const auto learner = learner_of({.rank = 4});
  for (size_t i = 0; i < before.flat().size(); ++i)
    ASSERT_EQ(kernels::to_float(learner.weights().flat()[i]), kernels::to_float(before.flat()[i]));
}

TEST(LowRank, learns_and_leaves_all_else_of_the_model_alone) {
  const auto before = small_weights();
  auto learner = learner_of({.rank = 4, .targets = {"q_proj", "up_proj"}});
  const auto samples = demonstrations();
  const double loss = *learner.evaluate(samples);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(learner.imitate(samples));
  EXPECT_LT(*learner.evaluate(samples), loss - 0.3);
  std::vector<bool> changed(before.flat().size());
  for (size_t i = 0; i < changed.size(); ++i) changed[i] = learner.weights().flat()[i].bits != before.flat()[i].bits;
  int matrices = 0;
  for (const auto& [name, matrix] : model::matrices_of(before.layout())) {
    const auto begin = changed.begin() + static_cast<std::ptrdiff_t>(matrix.offset);
    const auto end = begin + static_cast<std::ptrdiff_t>(matrix.elements());
    const bool target = name.ends_with("q_proj.weight") || name.ends_with("up_proj.weight");
    EXPECT_EQ(std::find(begin, end, true) != end, target) << name;
    std::fill(begin, end, false);
    matrices += target;
  }
  EXPECT_EQ(matrices, 4);
  EXPECT_EQ(std::count(changed.begin(), changed.end(), true), 0) << "norms learned";
}

// What is written merges to the weights that were trained, so whoever serves the adapter serves those.
TEST(LowRank, the_adapter_merged_into_the_model_is_what_was_trained_bit_by_bit) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("tandem-low-rank-{}", ::getpid());
  for (const bool rslora : {false, true}) {
    auto learner = learner_of({.rank = 3, .alpha = 7, .use_rslora = rslora}, 2);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(learner.imitate(demonstrations()));
    ASSERT_TRUE(learner.export_model(folder, folder));
    auto merged = small_weights();
    auto stream = stream_of(1);
    const auto count = model::merge_adapter(stream, folder / "adapter", merged);
    ASSERT_TRUE(count) << count.error().to_string();
    EXPECT_EQ(*count, 14);
    EXPECT_EQ(merged.digest(), learner.weights().digest());
    EXPECT_EQ(model::load_weights(folder, false)->digest(), learner.weights().digest());
    fs::remove_all(folder);
  }
}

TEST(LowRank, goes_on_from_a_checkpoint_with_the_same_bits) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("tandem-low-rank-checkpoint-{}", ::getpid());
  const auto samples = demonstrations();
  auto whole = learner_of({.rank = 4});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(whole.imitate(samples));
  ASSERT_TRUE(whole.save(folder));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(whole.imitate(samples));
  auto resumed = learner_of({.rank = 4, .seed = 77}, 3);
  const Status loaded = resumed.load(folder);
  ASSERT_TRUE(loaded) << loaded.to_string();
  EXPECT_EQ(checkpoint_weights(folder)->digest(), resumed.weights().digest());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(resumed.imitate(samples));
  EXPECT_EQ(resumed.weights().digest(), whole.weights().digest());
  auto other = learner_of({.rank = 5});
  EXPECT_NE(other.load(folder).to_string().find("another optimizer: adamw, fp32 moments, LoRA of rank 4"),
            std::string::npos)
      << other.load(folder).to_string();
  fs::remove_all(folder);
}

TEST(LowRank, experts_have_factors_of_their_own_and_routers_none) {
  const auto weights = small_weights(true);
  const auto low_rank = LowRank::create(weights, {.rank = 2});
  ASSERT_TRUE(low_rank) << low_rank.error().to_string();
  const std::vector<float> factors(low_rank->elements());
  const auto adapter = low_rank->adapter(model::slice_of("factors", std::span(factors)));
  EXPECT_EQ(adapter.factors.size(), 2 * (4 + 3 * 3));
  EXPECT_TRUE(adapter.factors.contains("model.layers.1.mlp.experts.2.up_proj.weight"));
  for (const auto& [name, unused] : adapter.factors) {
    EXPECT_EQ(name.find("mlp.gate.weight"), std::string::npos);
    EXPECT_EQ(name.find("embed"), std::string::npos);
  }
}

TEST(LowRank, settings_that_cannot_be_are_named) {
  const auto weights = small_weights();
  const auto error_of = [&](const LowRankSettings& settings) {
    const auto made = LowRank::create(weights, settings);
    return made ? "" : made.error().to_string();
  };
  EXPECT_NE(error_of({.rank = 2, .targets = {"q_prj"}}).find("no matrix q_prj; did you mean q_proj?"),
            std::string::npos);
  EXPECT_NE(error_of({.rank = 51}).find("lora.rank is 51, and model.layers.0.mlp.down_proj.weight is [66, 50]"),
            std::string::npos)
      << error_of({.rank = 51});
  EXPECT_NE(error_of({.rank = 2, .alpha = 0}).find("lora.alpha is 0"), std::string::npos);
  const auto muon =
      Learner::create(small_weights(), stream_of(1), {.kind = OptimizerKind::kMuon, .low_rank = {.rank = 2}});
  ASSERT_FALSE(muon);
  EXPECT_NE(muon.error().to_string().find("take adamw with lora.rank"), std::string::npos);
}

TEST(LowRank, an_adapter_to_go_on_with_must_be_what_the_settings_say) {
  const fs::path start = fs::path(TANDEM_SOURCE_DIR) / "tests/golden/adapters/training";
  auto weights = std::move(*model::load_weights(fs::path(TANDEM_SOURCE_DIR) / "tests/golden/sft/model", true));
  const auto error_of = [&](const LowRankSettings& settings) {
    return LowRank::check(weights.layout(), settings).to_string();
  };
  const std::vector<std::string> targets = {"q_proj", "o_proj", "up_proj", "down_proj"};
  EXPECT_NE(error_of({.rank = 8, .alpha = 6, .targets = targets, .start = start}).find("has rank 4"),
            std::string::npos);
  EXPECT_NE(
      error_of({.rank = 4, .alpha = 6, .targets = {"q_proj", "k_proj"}, .start = start}).find("has no factors of"),
      std::string::npos);
  EXPECT_NE(error_of({.rank = 4, .alpha = 6, .targets = {"q_proj"}, .start = start}).find("has factors of 8 matrices"),
            std::string::npos)
      << error_of({.rank = 4, .alpha = 6, .targets = {"q_proj"}, .start = start});
}

}  // namespace
}  // namespace tandem::trainer
