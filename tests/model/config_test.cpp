#include "model/config.h"

#include <gtest/gtest.h>

namespace tandem::model {
namespace {

Json smol() {
  return *parse_json(R"({"model_type":"llama","num_hidden_layers":30,"hidden_size":576,"num_attention_heads":9,
    "num_key_value_heads":3,"intermediate_size":1536,"vocab_size":49152,"max_position_embeddings":8192,
    "rms_norm_eps":1e-05,"tie_word_embeddings":true,"rope_theta":100000,"rope_scaling":null,"hidden_act":"silu",
    "torch_dtype":"bfloat16","eos_token_id":2,"bos_token_id":1,"pad_token_id":2})");
}

TEST(Config, reads_the_sizes_of_smollm2_and_counts_its_parameters) {
  const auto config = config_from_json(smol());
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_EQ(config->head_size, 64);
  EXPECT_EQ(config->dtype, DType::kBF16);
  EXPECT_EQ(config->rope.theta, 100000);
  EXPECT_EQ(config->eos_tokens, std::vector<TokenId>{2});
  EXPECT_EQ(parameter_count(*config), 134515008);  // as transformers counts them
}

TEST(Config, both_notations_of_the_hub_give_the_same_model) {
  Json newer = smol();
  newer.erase("rope_theta");
  newer.erase("rope_scaling");
  newer.erase("torch_dtype");
  newer["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 100000.0}};
  newer["dtype"] = "bfloat16";
  EXPECT_EQ(*config_from_json(newer), *config_from_json(smol()));
}

TEST(Config, written_and_read_back_is_the_same_for_all_families_and_ropes) {
  ModelConfig config{.family = "llama",
                     .layers = 2,
                     .width = 24,
                     .heads = 4,
                     .kv_heads = 2,
                     .head_size = 8,
                     .mlp_width = 20,
                     .vocabulary = 50,
                     .max_positions = 128,
                     .norm_epsilon = 1e-5,
                     .eos_tokens = {2, 5},
                     .bos_token = 1};
  const RopeConfig ropes[] = {{.theta = 5e5},
                              {.kind = RopeKind::kLinear, .factor = 2},
                              {.kind = RopeKind::kLlama3, .factor = 8, .original_max_positions = 64},
                              {.kind = RopeKind::kYarn,
                               .factor = 4,
                               .original_max_positions = 32,
                               .attention_factor = 1.25,
                               .truncate = false}};
  for (const std::string family : {"llama", "qwen2", "qwen3"}) {
    for (const RopeConfig& rope : ropes) {
      config.family = family;
      config.rope = rope;
      config.qkv_bias = family == "qwen2";
      config.qk_norm = family == "qwen3";
      const auto back = config_from_json(to_json(config));
      ASSERT_TRUE(back) << back.error().to_string();
      EXPECT_EQ(*back, config) << to_json(config).dump();
    }
  }
}

TEST(Config, what_is_not_implemented_is_refused_by_name) {
  const struct {
    const char* patch;
    const char* expected;
  } cases[] = {
      {R"({"model_type":"mamba"})", "model_type \"mamba\" is not one of llama, qwen2, qwen3"},
      {R"({"rope_scaling":{"rope_type":"longrope","factor":2}})", "rope_type \"longrope\" is not one of default"},
      {R"({"rope_scaling":{"type":"dynamic","factor":2}})", "\"dynamic\""},
      {R"({"rope_scaling":{"type":"linear"}})", "lacks factor"},
      {R"({"hidden_act":"gelu"})", "hidden_act \"gelu\""},
      {R"({"quantization_config":{"quant_method":"gptq"}})", "gptq"},
      {R"({"mlp_bias":true})", "mlp_bias"},
      {R"({"sliding_window":4096,"use_sliding_window":true})", "use_sliding_window"},
      {R"({"layer_types":["full_attention","sliding_attention"]})", "sliding_attention"},
      {R"({"partial_rotary_factor":0.5})", "partial_rotary_factor"},
      {R"({"torch_dtype":"int8"})", "torch_dtype \"int8\""},
      {R"({"num_attention_heads":10})", "not a multiple"},
      {R"({"head_dim":7})", "odd"},
      {R"({"hidden_size":-1})", "hidden_size is -1"},
      {R"({"hidden_size":1e30})", "hidden_size is 1e+30"},
      {R"({"vocab_size":null})", "lacks vocab_size"},
      {R"({"eos_token_id":"x"})", "eos_token_id"},
  };
  for (const auto& item : cases) {
    Json json = smol();
    json.update(*parse_json(item.patch));
    const auto config = config_from_json(json);
    ASSERT_FALSE(config) << item.patch;
    EXPECT_NE(config.error().message().find(item.expected), std::string::npos) << config.error().message();
  }
}

TEST(Config, generation_config_says_where_an_answer_ends) {
  const fs::path folder = fs::temp_directory_path() / "tandem-config-test";
  fs::remove_all(folder);
  ASSERT_TRUE(make_directories(folder));
  ASSERT_TRUE(write_file(folder / "config.json", smol().dump()));
  EXPECT_EQ(read_config(folder)->eos_tokens, std::vector<TokenId>{2});
  ASSERT_TRUE(write_file(folder / "generation_config.json", R"({"eos_token_id":[7,8]})"));
  EXPECT_EQ(read_config(folder)->eos_tokens, (std::vector<TokenId>{7, 8}));
  ASSERT_TRUE(write_file(folder / "config.json", "{"));
  EXPECT_NE(read_config(folder).error().message().find("config.json"), std::string::npos);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tandem::model
