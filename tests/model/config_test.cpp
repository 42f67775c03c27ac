#include "model/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "model/parameters.h"
#include "model/transformer.h"

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
                          .top_k = 2,
                          .width = 10,
                          .normalise = true,
                          .sigmoid = true,
                          .scale = 2.5,
                          .shared_width = 20,
                          .first = 1};
      }
      if (family == "deepseek_v3") {
        config.qkv_bias = config.output_bias = config.rope.interleaved = true;
        config.kv_heads = config.heads;
        config.latent = {.rank = 10, .query_rank = 12, .plain = 8, .rope_dim = 4, .value = 6};
        config.head_size = 12;
        config.experts = {.count = 6,
                          .top_k = 2,
                          .width = 10,
                          .normalise = true,
                          .sigmoid = true,
                          .scale = 2.5,
                          .groups = 3,
                          .top_k_groups = 2,
                          .shared_width = 20,
                          .first = 1};
      }
      if (family == "qwen3_moe") {
        config.experts = {.count = 6, .top_k = 2, .width = 10, .normalise = true, .every = 1, .except = {1}};
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

// As the hub has it, but for what says how it is served.
Json deepseek_v3() {
  return *parse_json(R"({"architectures":["DeepseekV3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
    "bos_token_id":0,"eos_token_id":1,"ep_size":1,"first_k_dense_replace":3,"hidden_act":"silu","hidden_size":7168,
    "initializer_range":0.02,"intermediate_size":18432,"kv_lora_rank":512,"max_position_embeddings":163840,
    "model_type":"deepseek_v3","moe_intermediate_size":2048,"moe_layer_freq":1,"n_group":8,"n_routed_experts":256,
    "n_shared_experts":1,"norm_topk_prob":true,"num_attention_heads":128,"num_experts_per_tok":8,
    "num_hidden_layers":61,"num_key_value_heads":128,"num_nextn_predict_layers":1,"q_lora_rank":1536,
    "qk_nope_head_dim":128,"qk_rope_head_dim":64,"rms_norm_eps":1e-06,
    "quantization_config":{"activation_scheme":"dynamic","fmt":"e4m3","quant_method":"fp8",
      "weight_block_size":[128,128]},
    "rope_scaling":{"beta_fast":32,"beta_slow":1,"factor":40,"mscale":1.0,"mscale_all_dim":1.0,
      "original_max_position_embeddings":4096,"type":"yarn"},
    "rope_theta":10000,"routed_scaling_factor":2.5,"scoring_func":"sigmoid","tie_word_embeddings":false,"topk_group":4,
    "topk_method":"noaux_tc","torch_dtype":"bfloat16","use_cache":true,"v_head_dim":128,"vocab_size":129280})");
}

TEST(Config, knows_deepseek_v3_and_what_a_token_of_it_is_remembered_by) {
  const auto config = config_from_json(deepseek_v3());
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_EQ(config->latent,
            (LatentConfig{.rank = 512, .query_rank = 1536, .plain = 128, .rope_dim = 64, .value = 128}));
  EXPECT_EQ(rope_dim(*config), 64);
  EXPECT_TRUE(config->rope.interleaved);
  // The technical report has 671 B, of which a token uses 37 B; layers for predicting several tokens are left out.
  EXPECT_NEAR(static_cast<double>(parameter_count(*config)), 671.0e9, 0.1e9);
  EXPECT_NEAR(static_cast<double>(active_parameter_count(*config)), 37.5e9, 0.1e9);
  const kernels::AttentionShape shape = attention_shape(*config);
  EXPECT_EQ(shape.kv_heads, 1);
  EXPECT_EQ(shape.head_size, 576);
  EXPECT_EQ(shape.values(), 512);
  const double stretch = 0.1 * std::log(40.0) + 1;
  EXPECT_FLOAT_EQ(shape.scale, static_cast<float>(stretch * stretch / std::sqrt(192.0)));
  EXPECT_EQ(rope_magnitude(config->rope), 1);
  EXPECT_TRUE(parameter_layout(*config));
  EXPECT_EQ(*config_from_json(to_json(*config)), *config);
}

TEST(Config, kimi_k2_is_deepseek_v3_by_another_name) {
  Json json = deepseek_v3();
  json.update(*parse_json(R"({"model_type":"kimi_k2","num_attention_heads":64,"num_key_value_heads":64,
    "first_k_dense_replace":1,"n_routed_experts":384,"n_group":1,"topk_group":1,"routed_scaling_factor":2.827,
    "rope_theta":50000.0,"vocab_size":163840,"max_position_embeddings":131072,"num_nextn_predict_layers":0,
    "rope_scaling":{"beta_fast":1.0,"beta_slow":1.0,"factor":32.0,"mscale":1.0,"mscale_all_dim":1.0,
      "original_max_position_embeddings":4096,"type":"yarn"}})"));
  const auto config = config_from_json(json);
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_NEAR(static_cast<double>(parameter_count(*config)), 1.026e12, 0.001e12);
  EXPECT_EQ(*config_from_json(to_json(*config)), *config);
  EXPECT_EQ(to_json(*config)["architectures"], Json({"DeepseekV3ForCausalLM"}));
}

TEST(Config, what_latent_attention_and_its_routers_do_not_do_is_refused_by_name) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"kv_lora_rank":null})", "lacks kv_lora_rank"},
      {R"({"qk_rope_head_dim":63})", "qk_rope_head_dim 63 is odd"},
      {R"({"num_key_value_heads":8})", "num_key_value_heads is 8, but latent attention has 128 heads"},
      {R"({"head_dim":192})", "head_dim is 192, but qk_rope_head_dim is 64"},
      {R"({"q_lora_rank":null,"attention_bias":true})", "attention_bias goes with q_lora_rank"},
      {R"({"rope_scaling":{"type":"linear","factor":2,"mscale_all_dim":1.0}})", "mscale_all_dim goes with yarn"},
      {R"({"n_group":null})", "lacks n_group"},
      {R"({"n_group":7})", "n_group 7 does not part 256 experts"},
      {R"({"n_group":256,"topk_group":8})", "groups of two at least"},
      {R"({"topk_group":9})", "topk_group 9 of 8 groups does not have 8 experts"},
      {R"({"n_group":64,"topk_group":1})", "topk_group 1 of 64 groups does not have 8 experts"},
      {R"({"topk_method":"group_limited_greedy"})", "topk_method \"group_limited_greedy\" is not noaux_tc"},
      {R"({"scoring_func":"softmax"})", "scoring_func \"softmax\" is not sigmoid"},
      {R"({"moe_layer_freq":2})", "moe_layer_freq is not 1"},
      {R"({"partial_rotary_factor":0.5})", "partial_rotary_factor is not 1"},
  };
  for (const auto& [patch, expected] : cases) {
    Json json = deepseek_v3();
    json.update(*parse_json(patch));
    const auto config = config_from_json(json);
    ASSERT_FALSE(config) << patch;
    EXPECT_NE(config.error().message().find(expected), std::string::npos) << config.error().message();
  }
  Json json = deepseek_v3();
  json.erase("q_lora_rank");
  EXPECT_NE(config_from_json(json).error().message().find("lacks q_lora_rank"), std::string::npos);
  for (const auto& [key, value] : {std::pair{"kv_lora_rank", 514}, {"kv_lora_rank", 511}, {"v_head_dim", 127}}) {
    Json odd = deepseek_v3();
    odd[key] = value;
    const auto layout = parameter_layout(*config_from_json(odd));
    ASSERT_FALSE(layout) << key;
    EXPECT_NE(layout.error().message().find("does not compute"), std::string::npos) << layout.error().message();
  }
}

TEST(Config, what_is_not_implemented_is_refused_by_name) {
  const struct {
    const char* patch;
    const char* expected;
  } cases[] = {
      {R"({"model_type":"mamba"})",
       "model_type \"mamba\" is not one of llama, mistral, qwen2, qwen3, qwen3_moe, glm4, glm4_moe, deepseek_v3, "
       "kimi_k2"},
      {R"({"rope_scaling":{"rope_type":"longrope","factor":2}})", "rope_type \"longrope\" is not one of default"},
      {R"({"rope_scaling":{"type":"dynamic"}})", "lacks factor"},
      {R"({"rope_parameters":{"full_attention":{"rope_type":"yarn"}}})", "rope_parameters.full_attention"},
      {R"({"rope_scaling":{"type":"yarn","factor":2,"beta_slow":64}})", "beta_slow is above beta_fast"},
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
  const fs::path folder = fs::temp_directory_path() / ("tandem-config-" + std::to_string(::getpid()));
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
