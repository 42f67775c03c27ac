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
  const RopeConfig ropes[] = {
      {.theta = 5e5},
      {.kind = RopeKind::kLinear, .factor = 2},
      {.kind = RopeKind::kDynamic, .factor = 2},
      {.kind = RopeKind::kYarn, .factor = 4, .original_max_positions = 32, .mscale = 1.5, .mscale_all_dim = 0.5},
      {.kind = RopeKind::kLlama3, .factor = 8, .original_max_positions = 64},
      {.kind = RopeKind::kYarn,
       .factor = 4,
       .original_max_positions = 32,
       .attention_factor = 1.25,
       .truncate = false}};
  for (const std::string family : {"llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "glm4", "glm4_moe"}) {
    for (const RopeConfig& rope : ropes) {
      config.family = family;
      config.rope = rope;
      config.qkv_bias = family == "qwen2";
      config.qk_norm = family.starts_with("qwen3");
      config.window = family == "mistral" || family.starts_with("qwen") ? 48 : 0;
      config.sliding = config.window == 0                       ? std::vector<bool>{}
                       : family == "qwen2" || family == "qwen3" ? std::vector{false, true}
                                                                : std::vector{true, true};
      config.experts = {};
      if (family == "glm4") {
        config.qkv_bias = config.post_norms = config.fused_gate_up = config.rope.interleaved = true;
        config.rope.partial = 0.25;
      }
      if (family == "glm4_moe") {
        config.post_norms = config.fused_gate_up = config.rope.interleaved = false;
        config.qk_norm = config.qkv_bias = true;
        config.rope.partial = 0.5;
        config.experts = {.count = 6,
                          .chosen = 2,
                          .width = 10,
                          .normalise = true,
                          .sigmoid = true,
                          .scale = 2.5,
                          .shared_width = 20,
                          .first = 1};
      }
      if (family == "qwen3_moe") {
        config.experts = {.count = 6, .chosen = 2, .width = 10, .normalise = true, .every = 1, .except = {1}};
      }
      const auto back = config_from_json(to_json(config));
      ASSERT_TRUE(back) << back.error().to_string();
      EXPECT_EQ(*back, config) << to_json(config).dump();
    }
  }
}

Json qwen3_30b_a3b() {
  return *parse_json(R"({"model_type":"qwen3_moe","num_hidden_layers":48,"hidden_size":2048,"num_attention_heads":32,
    "num_key_value_heads":4,"head_dim":128,"intermediate_size":6144,"vocab_size":151936,
    "max_position_embeddings":40960,"rms_norm_eps":1e-06,"tie_word_embeddings":false,"rope_theta":1000000.0,
    "hidden_act":"silu","torch_dtype":"bfloat16","num_experts":128,"num_experts_per_tok":8,"moe_intermediate_size":768,
    "norm_topk_prob":true,"decoder_sparse_step":1,"mlp_only_layers":[],"output_router_logits":false,
    "router_aux_loss_coef":0.001,"sliding_window":null,"use_sliding_window":false,"attention_bias":false})");
}

TEST(Config, counts_all_parameters_of_a_mixture_of_experts_and_those_that_a_token_uses) {
  const auto config = config_from_json(qwen3_30b_a3b());
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_TRUE(config->qk_norm);
  EXPECT_TRUE(config->experts.normalise);
  EXPECT_EQ(parameter_count(*config), 30532122624);  // as transformers counts them
  EXPECT_EQ(active_parameter_count(*config), 30532122624 - 48ll * 120 * 3 * 768 * 2048);
  EXPECT_EQ(active_parameter_count(*config_from_json(smol())), parameter_count(*config_from_json(smol())));
}

TEST(Config, the_names_of_the_number_of_experts_mean_the_same_and_must_agree) {
  const auto expected = config_from_json(qwen3_30b_a3b());
  for (const char* name : {"num_local_experts", "n_routed_experts"}) {
    Json json = qwen3_30b_a3b();
    json.erase("num_experts");
    json[name] = 128;
    EXPECT_EQ(*config_from_json(json), *expected) << name;
    json["num_experts"] = 64;
    EXPECT_NE(config_from_json(json).error().message().find("num_experts is 64, but " + std::string(name) + " is 128"),
              std::string::npos);
  }
}

TEST(Config, says_which_layers_have_experts) {
  Json json = qwen3_30b_a3b();
  json["decoder_sparse_step"] = 2;
  json["mlp_only_layers"] = {3, 0};
  const auto config = config_from_json(json);
  ASSERT_TRUE(config) << config.error().to_string();
  std::vector<bool> sparse;
  for (int layer = 0; layer < 6; ++layer) sparse.push_back(config->has_experts(layer));
  EXPECT_EQ(sparse, (std::vector<bool>{false, true, false, false, false, true}));
}

TEST(Config, what_experts_do_not_do_is_refused_by_name) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"num_experts":null})", "lacks num_experts"},
      {R"({"num_experts_per_tok":129})", "num_experts_per_tok is 129, but there are 128 experts"},
      {R"({"mlp_only_layers":[48]})", "mlp_only_layers names layer 48, but there are 48"},
      {R"({"mlp_only_layers":[-1]})", "mlp_only_layers is [-1], not a layer or a list of them"},
      {R"({"shared_expert_intermediate_size":512})", "shared_expert_intermediate_size is 512"},
      {R"({"n_shared_experts":1})", "n_shared_experts is 1"},
      {R"({"n_group":8})", "n_group is 8"},
      {R"({"routed_scaling_factor":2.5})", "routed_scaling_factor is 2.5"},
      {R"({"scoring_func":"sigmoid"})", "scoring_func \"sigmoid\""},
  };
  for (const auto& [patch, expected] : cases) {
    Json json = qwen3_30b_a3b();
    json.update(*parse_json(patch));
    const auto config = config_from_json(json);
    ASSERT_FALSE(config) << patch;
    EXPECT_NE(config.error().message().find(expected), std::string::npos) << config.error().message();
  }
}

TEST(Config, what_is_not_implemented_is_refused_by_name) {
  const struct {
    const char* patch;
    const char* expected;
  } cases[] = {
      {R"({"model_type":"mamba"})",
       "model_type \"mamba\" is not one of llama, mistral, qwen2, qwen3, qwen3_moe, glm4, glm4_moe"},
      {R"({"rope_scaling":{"rope_type":"longrope","factor":2}})", "rope_type \"longrope\" is not one of default"},
      {R"({"rope_scaling":{"type":"dynamic"}})", "lacks factor"},
      {R"({"rope_parameters":{"full_attention":{"rope_type":"yarn"}}})", "rope_parameters.full_attention"},
      {R"({"rope_scaling":{"type":"yarn","factor":2,"beta_slow":64}})", "beta_slow is not below beta_fast"},
      {R"({"rope_scaling":{"type":"linear"}})", "lacks factor"},
      {R"({"hidden_act":"gelu"})", "hidden_act \"gelu\""},
      {R"({"quantization_config":{"quant_method":"gptq"}})", "quant_method \"gptq\" is not fp8"},
      {R"({"quantization_config":{"quant_method":"fp8"}})", "weight_block_size is null"},
      {R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[64,128]}})",
       "weight_block_size is [64,128]"},
      {R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[128,128],"fmt":"e5m2"}})", "\"e5m2\""},
      {R"({"mlp_bias":true})", "mlp_bias"},
      {R"({"sliding_window":4096,"use_sliding_window":true})", "use_sliding_window"},
      {R"({"num_hidden_layers":2,"layer_types":["full_attention","sliding_attention"]})",
       "layer type \"sliding_attention\" of layer 1"},
      {R"({"num_hidden_layers":1,"layer_types":["linear_attention"]})", "layer type \"linear_attention\" of layer 0"},
      {R"({"layer_types":["full_attention"]})", "layer_types is not a list of 30 names"},
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

// What each family's class in transformers makes of the same keys.
TEST(Config, says_which_layers_slide) {
  const struct {
    const char* patch;
    std::vector<int> windows;
  } cases[] = {
      {R"({"model_type":"llama","sliding_window":8})", {0, 0, 0}},
      {R"({"model_type":"mistral","sliding_window":8})", {8, 8, 8}},
      {R"({"model_type":"mistral"})", {4096, 4096, 4096}},
      {R"({"model_type":"mistral","sliding_window":null})", {0, 0, 0}},
      {R"({"model_type":"qwen2","sliding_window":8})", {0, 0, 0}},
      {R"({"model_type":"qwen2","sliding_window":8,"use_sliding_window":true})", {0, 0, 0}},
      {R"({"model_type":"qwen2","sliding_window":8,"use_sliding_window":true,"max_window_layers":2})", {0, 0, 8}},
      {R"({"model_type":"qwen2","sliding_window":8,"use_sliding_window":true,
           "layer_types":["sliding_attention","full_attention","sliding_attention"]})",
       {8, 0, 8}},
  };
  for (const auto& item : cases) {
    Json json = smol();
    json["num_hidden_layers"] = 3;
    json.update(*parse_json(item.patch));
    const auto config = config_from_json(json);
    ASSERT_TRUE(config) << item.patch << ": " << config.error().to_string();
    std::vector<int> windows;
    for (int layer = 0; layer < 3; ++layer) windows.push_back(config->window_of(layer));
    EXPECT_EQ(windows, item.windows) << item.patch;
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
