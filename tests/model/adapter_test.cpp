// Adapters merged as PEFT merges them (tests/golden/make_adapters.py).
#include "model/adapter.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>

#include "model/safetensors.h"
#include "tests/model/engine_logprobs.h"

namespace tandem::model {
namespace {

fs::path adapter(const std::string& name) { return fs::path(TANDEM_SOURCE_DIR) / "tests/golden/adapters" / name; }

Json expected_of_adapter(const std::string& name) { return *parse_json(*read_file(adapter(name) / "expected.json")); }

struct Case {
  const char *adapter, *model;
  int matrices;
};
constexpr Case kCases[] = {{"lora", "llama", 6}, {"rslora", "qwen2", 14}};

TEST(Adapter, is_merged_as_peft_merges_it) {
  auto stream = std::move(*kernels::Stream::cpu(2));
  for (const Case& item : kCases) {
    const auto before = std::move(*load_weights(golden_model(item.model), false));
    auto weights = std::move(*load_weights(golden_model(item.model), false));
    const auto merged = merge_adapter(stream, adapter(item.adapter), weights);
    ASSERT_TRUE(merged) << merged.error().to_string();
    EXPECT_EQ(*merged, item.matrices);
    const Json expected = expected_of_adapter(item.adapter)["matrices"];
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
      {R"({"new_thing":true})", "new_thing is not supported"},
      {R"({"new_things":{"a":1}})", "new_things is not supported"},
      {R"({"use_bdlora":{}})", "use_bdlora is not supported"},
      {R"({"arrow_config":{}})", "arrow_config is not supported"},
      {R"({"rank_pattern":{"q_proj":8}})", "rank_pattern"},
      {R"({"modules_to_save":["lm_head"]})", "modules_to_save"},
      {R"({"init_lora_weights":"pissa_niter_4"})", "init_lora_weights \"pissa_niter_4\" changes the base weights"},
      {R"({"init_lora_weights":"PiSSA"})", "init_lora_weights \"PiSSA\" is not supported"},
      {R"({"init_lora_weights":"milora"})", "init_lora_weights \"milora\" is not supported"},
      {R"({"init_lora_weights":3})", "init_lora_weights is 3"},
      {R"({"r":0})", "r is 0"},
      {R"({"r":8})", "the factors of model.layers.0.mlp.down_proj.weight are [4, 50] and [30, 4], not of rank 8"},
  };
  auto stream = std::move(*kernels::Stream::cpu(1));
  auto weights = std::move(*load_weights(golden_model("llama"), false));
  const Digest before = weights.digest();
  for (const auto& [patch, expected] : cases) {
    Json patched = config;
    patched.update(*parse_json(patch));
    ASSERT_TRUE(write_file(copy / "adapter_config.json", patched.dump()));
    const auto merged = merge_adapter(stream, copy, weights);
    ASSERT_FALSE(merged) << patch;
    EXPECT_NE(merged.error().to_string().find(expected), std::string::npos) << merged.error().to_string();
  }
  EXPECT_EQ(weights.digest(), before);
  // What says nothing stops nothing.
  Json harmless = config;
  harmless.update(*parse_json(
      R"({"new_thing":null,"other":false,"more":{},"text":"","use_bdlora":null,"init_lora_weights":"gaussian"})"));
  ASSERT_TRUE(write_file(copy / "adapter_config.json", harmless.dump()));
  auto changed = std::move(*load_weights(golden_model("llama"), false));
  const auto merged = merge_adapter(stream, copy, changed);
  EXPECT_TRUE(merged) << merged.error().to_string();
  std::string factors = *read_file(copy / kAdapterFactorsFile);
  factors.replace(factors.size() - sizeof(float), sizeof(float), sizeof(float), '\xff');  // NaN
  ASSERT_TRUE(write_file(copy / kAdapterFactorsFile, factors));
  const auto broken = merge_adapter(stream, copy, weights);
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().to_string().find("hold NaN"), std::string::npos) << broken.error().to_string();
  EXPECT_EQ(weights.digest(), before);
  auto other = std::move(*load_weights(golden_model("glm4"), false));
  EXPECT_NE(merge_adapter(stream, adapter("rslora"), other).error().to_string().find("the model has no matrix"),
            std::string::npos);
  fs::remove_all(copy);
}

TEST(Adapter, log_probabilities_in_float32_are_those_of_peft) {
  auto stream = std::move(*kernels::Stream::cpu(2));
  for (const Case& item : kCases) {
    auto weights = std::move(*load_weights(golden_model(item.model), false, WeightFormat::kFloat32));
    ASSERT_TRUE(merge_adapter(stream, adapter(item.adapter), weights));
    ASSERT_TRUE(weights.pack(stream));
    const Json expected = expected_of_adapter(item.adapter);
    const auto tokens = expected["tokens"].get<std::vector<int32_t>>();
    const auto found = engine_logprobs(stream, weights, tokens, 7);
    ASSERT_EQ(found.size(), expected["logprobs"].size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected["logprobs"][i].get<double>(), 1e-4) << i;
  }
}

TEST(Adapter, what_was_written_is_read_again) {
  const fs::path copy = fs::temp_directory_path() / fmt::format("tandem-adapter-written-{}", ::getpid());
  for (const Case& item : kCases) {
    const auto original = read_adapter(adapter(item.adapter));
    ASSERT_TRUE(original) << original.error().to_string();
    ASSERT_TRUE(write_adapter(*original, copy, "models/some"));
    const auto again = read_adapter(copy);
    ASSERT_TRUE(again) << again.error().to_string();
    EXPECT_EQ(again->rank, original->rank);
    EXPECT_EQ(again->scale(), original->scale());
    ASSERT_EQ(again->factors.size(), original->factors.size());
    for (const auto& [name, factors] : original->factors) {
      EXPECT_EQ(again->factors.at(name).a, factors.a) << name;
      EXPECT_EQ(again->factors.at(name).b, factors.b) << name;
    }
  }
  fs::remove_all(copy);
}

TEST(Adapter, a_factor_without_the_other_is_refused) {
  const fs::path copy = fs::temp_directory_path() / fmt::format("tandem-adapter-half-{}", ::getpid());
  fs::copy(adapter("lora"), copy);
  const std::vector<float> values(4 * 50);
  const NamedTensor half{"base_model.model.model.layers.0.mlp.down_proj.lora_A.weight",
                         {.dtype = DType::kF32, .shape = {4, 50}, .bytes = std::as_bytes(std::span(values))}};
  ASSERT_TRUE(write_safetensors(copy / "adapter_model.safetensors", std::span(&half, 1)));
  const auto read = read_adapter(copy);
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().to_string().find("model.layers.0.mlp.down_proj.weight has one factor, not two"),
            std::string::npos)
      << read.error().to_string();
  fs::remove_all(copy);
}

}  // namespace
}  // namespace tandem::model
