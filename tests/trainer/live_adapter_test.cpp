// Adapters beside the weights, as PEFT computes them before it merges them (tests/golden/make_adapters.py).
#include "model/live_adapter.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/engine_logprobs.h"
#include "trainer/learn/tape.h"

namespace tandem::trainer {
namespace {

using namespace model;

fs::path adapter(const std::string& name) { return fs::path(TANDEM_SOURCE_DIR) / "tests/golden/adapters" / name; }

struct Case {
  const char *adapter, *model;
};
constexpr Case kCases[] = {{"lora", "llama"}, {"rslora", "qwen2"}};

Weights with_live(kernels::Stream& stream, const Case& item, WeightFormat format) {
  auto weights = std::move(*load_weights(golden_model(item.model), false, format));
  auto live = LiveAdapter::read(stream, adapter(item.adapter), weights);
  EXPECT_TRUE(live) << live.error().to_string();
  weights.attach(*live);
  EXPECT_TRUE(weights.pack(stream));
  return weights;
}

TEST(LiveAdapter, log_probabilities_in_float32_are_those_of_peft) {
  auto stream = std::move(*kernels::Stream::cpu(2));
  for (const Case& item : kCases) {
    const auto weights = with_live(stream, item, WeightFormat::kFloat32);
    const Json expected = *parse_json(*read_file(adapter(item.adapter) / "expected.json"));
    const auto found = engine_logprobs(stream, weights, expected["tokens"].get<std::vector<int32_t>>(), 7);
    ASSERT_EQ(found.size(), expected["logprobs"].size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected["logprobs"][i].get<double>(), 1e-4) << i;
  }
}

TEST(LiveAdapter, engine_and_trainer_give_the_same_bits_whatever_the_chunks_and_the_weights) {
  auto stream = std::move(*kernels::Stream::cpu(2));
  for (const Case& item : kCases) {
    const auto tokens =
        (*parse_json(*read_file(adapter(item.adapter) / "expected.json")))["tokens"].get<std::vector<int32_t>>();
    for (const auto format : {WeightFormat::kBf16, WeightFormat::kFp8, WeightFormat::kFloat32}) {
      const auto weights = with_live(stream, item, format);
      const auto whole = engine_logprobs(stream, weights, tokens, static_cast<int>(tokens.size()));
      EXPECT_EQ(engine_logprobs(stream, weights, tokens, 3), whole) << to_string(format);
      const std::span<const int32_t> view = tokens;
      std::vector<kernels::TokenPick> picks;
      for (size_t i = 0; i + 1 < tokens.size(); ++i) picks.push_back({static_cast<int32_t>(i), tokens[i + 1]});
      Tape tape(weights.config(), weights.config().max_positions, format);
      EXPECT_EQ(*tape.forward(stream, weights, merge(std::span(&view, 1)), picks), whole) << to_string(format);

      auto bare = std::move(*load_weights(golden_model(item.model), false, format));
      ASSERT_TRUE(bare.pack(stream));
      EXPECT_NE(engine_logprobs(stream, bare, tokens, 3), whole) << to_string(format);
    }
  }
}

// A rank that products have to fill up, and a matrix that is in the middle of its parameter.
TEST(LiveAdapter, of_odd_rank_is_what_merging_it_gives) {
  auto stream = std::move(*kernels::Stream::cpu(2));
  auto merged = std::move(*load_weights(golden_model("llama"), false, WeightFormat::kFloat32));
  auto live = std::move(*load_weights(golden_model("llama"), false, WeightFormat::kFloat32));
  Adapter made{.rank = 3, .alpha = 2, .use_rslora = false, .factors = {}};
  for (const auto& [name, matrix] : matrices_of(merged.layout())) {
    if (module_of(name) != "k_proj" && module_of(name) != "down_proj") continue;
    Factors factors{.rows = matrix.rows, .columns = matrix.columns, .a = {}, .b = {}};
    for (int i = 0; i < 3 * matrix.columns; ++i) factors.a.push_back(0.1f * std::sin(static_cast<float>(i)));
    for (int i = 0; i < 3 * matrix.rows; ++i) factors.b.push_back(0.1f * std::cos(static_cast<float>(i)));
    made.factors[name] = std::move(factors);
  }
  ASSERT_TRUE(merge(stream, made, merged));
  live.attach(*LiveAdapter::create(stream, made, live));
  ASSERT_TRUE(merged.pack(stream));
  ASSERT_TRUE(live.pack(stream));
  const std::vector<int32_t> tokens = {3, 14, 15, 9, 26, 5, 35, 8};
  const auto expected = engine_logprobs(stream, merged, tokens, 8), found = engine_logprobs(stream, live, tokens, 8);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5) << i;
}

TEST(LiveAdapter, what_can_only_be_merged_is_refused_by_name) {
  auto stream = std::move(*kernels::Stream::cpu(1));
  auto weights = std::move(*load_weights(golden_model("qwen3-moe"), false));
  Adapter of_expert{.rank = 2, .alpha = 2, .use_rslora = false, .factors = {}};
  for (const auto& [name, matrix] : matrices_of(weights.layout())) {
    if (name.find("experts.0.down_proj") == std::string::npos) continue;
    const auto rows = static_cast<size_t>(matrix.rows), columns = static_cast<size_t>(matrix.columns);
    of_expert.factors[name] = {matrix.rows, matrix.columns, std::vector<float>(2 * columns),
                               std::vector<float>(2 * rows)};
  }
  ASSERT_FALSE(of_expert.factors.empty());
  const auto refused = LiveAdapter::create(stream, of_expert, weights);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().to_string().find("experts.0.down_proj.weight cannot be live"), std::string::npos)
      << refused.error().to_string();
  const auto other = LiveAdapter::read(stream, adapter("rslora"), weights);
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().to_string().find("adapter_model.safetensors"), std::string::npos)
      << other.error().to_string();
}

TEST(LiveAdapter, nothing_is_trained_beside_one) {
  auto stream = std::move(*kernels::Stream::cpu(1));
  auto weights = std::move(*load_weights(golden_model("llama"), true));
  weights.attach(*LiveAdapter::read(stream, adapter("lora"), weights));
  ASSERT_TRUE(weights.pack(stream));
  const std::vector<int32_t> tokens = {3, 14, 15};
  const std::span<const int32_t> view = tokens;
  const kernels::TokenPick pick{0, 14};
  Tape tape(weights.config(), weights.config().max_positions);
  ASSERT_TRUE(tape.forward(stream, weights, merge(std::span(&view, 1)), std::span(&pick, 1)));
  std::vector<float> grads(weights.layout().elements);
  const float gradient = 1;
  EXPECT_EQ(tape.backward(std::span(&gradient, 1), model::slice_of("gradients", std::span(grads))).code(),
            Code::kInvalid);
}

}  // namespace
}  // namespace tandem::trainer
