// Adapters merged as PEFT merges them (tests/golden/make_adapters.py).
#include "model/adapter.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>

#include "tests/model/engine_logprobs.h"

namespace tandem::model {
namespace {

fs::path adapter(const std::string& name) { return fs::path(TANDEM_SOURCE_DIR) / "tests/golden/adapters" / name; }

struct Case {
  const char *adapter, *model;
  int matrices;
};
constexpr Case kCases[] = {{"lora", "llama", 6}, {"rslora", "qwen2", 14}};

TEST(Adapter, is_merged_as_peft_merges_it) {
  for (const Case& item : kCases) {
    const auto before = std::move(*load_weights(golden_model(item.model), false));
    auto weights = std::move(*load_weights(golden_model(item.model), false));
    const auto merged = merge_adapter(adapter(item.adapter), weights);
    ASSERT_TRUE(merged) << merged.error().to_string();
    EXPECT_EQ(*merged, item.matrices);
    const Json expected = *parse_json(*read_file(adapter(item.adapter) / "expected.json"));
    size_t compared = 0;
    int changed = 0;
    for (const Parameter& p : weights.layout().parameters) {
      for (const ParameterPart& part : p.parts) {
        if (!expected.contains(part.checkpoint_name)) continue;
        const size_t first = p.offset + static_cast<size_t>(part.first_row) * p.columns;
        const auto values = weights.flat().subspan(first, static_cast<size_t>(part.rows) * p.columns);
        double sum = 0, dot = 0;
        for (size_t i = 0; i < values.size(); ++i) {
          sum += kernels::to_float(values[i]);
          dot += kernels::to_float(values[i]) * std::cos(static_cast<double>(i));
        }
        // Sums over the rank in another order may tip a rounding to bf16, of few of the numbers.
        EXPECT_NEAR(sum, expected[part.checkpoint_name][0].get<double>(), 0.01) << part.checkpoint_name;
        EXPECT_NEAR(dot, expected[part.checkpoint_name][1].get<double>(), 0.01) << part.checkpoint_name;
        changed += !std::ranges::equal(values, before.flat().subspan(first, values.size()));
        ++compared;
      }
    }
    EXPECT_EQ(compared, expected.size());
    EXPECT_EQ(changed, item.matrices);
  }
}

TEST(Adapter, what_is_not_merged_is_refused_by_name_and_changes_nothing) {
  const fs::path copy = fs::temp_directory_path() / fmt::format("tandem-adapter-{}", ::getpid());
  fs::copy(adapter("lora"), copy);
  const Json config = *parse_json(*read_file(copy / "adapter_config.json"));
  const std::pair<const char*, const char*> cases[] = {
      {R"({"peft_type":"IA3"})", "peft_type \"IA3\" is not LORA"},
      {R"({"use_dora":true})", "use_dora"},
      {R"({"bias":"all"})", "bias \"all\""},
      {R"({"rank_pattern":{"q_proj":8}})", "rank_pattern"},
      {R"({"modules_to_save":["lm_head"]})", "modules_to_save"},
      {R"({"r":0})", "r is 0"},
      {R"({"r":8})", "the factors of model.layers.0.mlp.down_proj.weight are [4, 50] and [30, 4], expected [8, 50]"},
  };
  auto weights = std::move(*load_weights(golden_model("llama"), false));
  const Digest before = weights.digest();
  for (const auto& [patch, expected] : cases) {
    Json patched = config;
    patched.update(*parse_json(patch));
    ASSERT_TRUE(write_file(copy / "adapter_config.json", patched.dump()));
    const auto merged = merge_adapter(copy, weights);
    ASSERT_FALSE(merged) << patch;
    EXPECT_NE(merged.error().to_string().find(expected), std::string::npos) << merged.error().to_string();
  }
  EXPECT_EQ(weights.digest(), before);
  auto other = std::move(*load_weights(golden_model("glm4"), false));
  EXPECT_NE(merge_adapter(adapter("rslora"), other).error().to_string().find("the model has no matrix"),
            std::string::npos);
  fs::remove_all(copy);
}

}  // namespace
}  // namespace tandem::model
