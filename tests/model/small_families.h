// A small model of each kind that the transformer can be: what engine and trainer are compared over.
#pragma once

#include <vector>

#include "model/config.h"

namespace tandem::model {

inline ModelConfig small_model(const char* family) {
  ModelConfig config;
  config.family = family;
  config.layers = 2;
  config.width = 64;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_size = 64;
  config.mlp_width = 96;
  config.vocabulary = 150;
  config.max_positions = 256;
  config.dtype = DType::kBF16;
  return config;
}

struct SmallFamily {
  const char* name;
  ModelConfig config;
};
inline std::vector<SmallFamily> small_families() {
  std::vector<SmallFamily> all = {{"llama", small_model("llama")}};
  ModelConfig biased = small_model("qwen2");
  biased.qkv_bias = biased.tied_embeddings = true;
  all.push_back({"biases", biased});
  ModelConfig normed = small_model("qwen3");
  normed.qk_norm = true;
  all.push_back({"head_norms", normed});
  ModelConfig post = small_model("glm4");
  post.post_norms = post.qkv_bias = post.fused_gate_up = true;
  all.push_back({"post_norms", post});
  ModelConfig sliding = small_model("mistral");
  sliding.window = 20;
  sliding.sliding = {true, false};
  all.push_back({"window", sliding});
  ModelConfig mixture = small_model("qwen3_moe");
  mixture.qk_norm = true;
  mixture.experts = {.count = 6, .top_k = 2, .width = 64, .normalise = true};
  all.push_back({"mixture", mixture});
  ModelConfig latent = small_model("deepseek_v3");
  latent.heads = latent.kv_heads = 2;
  latent.head_size = 48;
  latent.latent = {.rank = 32, .query_rank = 24, .plain = 32, .rope_dim = 16, .value = 32};
  latent.experts = {.count = 8,
                    .top_k = 2,
                    .width = 32,
                    .normalise = true,
                    .sigmoid = true,
                    .scale = 2.5,
                    .groups = 4,
                    .top_k_groups = 2,
                    .shared_width = 32,
                    .first = 1};
  all.push_back({"latent_attention", latent});
  return all;
}

}  // namespace tandem::model
