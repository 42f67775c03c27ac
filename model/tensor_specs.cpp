// What a checkpoint of a config holds: names, shapes, how many numbers, and how many of them a token uses.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "model/config.h"

namespace tandem::model {

namespace {

void add_latent(const ModelConfig& config, const std::function<void(std::string_view, std::vector<int64_t>)>& add) {
  const LatentConfig& latent = config.latent;
  const int64_t width = config.width, heads = config.heads, compressed = latent.rank + latent.rope_dim;
  if (latent.query_rank == 0) {
    add("self_attn.q_proj.weight", {heads * config.head_size, width});
  } else {
    add("self_attn.q_a_proj.weight", {latent.query_rank, width});
    if (config.qkv_bias) add("self_attn.q_a_proj.bias", {latent.query_rank});
    add("self_attn.q_a_layernorm.weight", {latent.query_rank});
    add("self_attn.q_b_proj.weight", {heads * config.head_size, latent.query_rank});
  }
  add("self_attn.kv_a_proj_with_mqa.weight", {compressed, width});
  if (config.qkv_bias) add("self_attn.kv_a_proj_with_mqa.bias", {compressed});
  add("self_attn.kv_a_layernorm.weight", {latent.rank});
  add("self_attn.kv_b_proj.weight", {heads * (latent.plain + latent.value), latent.rank});
  add("self_attn.o_proj.weight", {width, heads * latent.value});
}

}  // namespace

std::vector<TensorSpec> tensor_specs(const ModelConfig& config) {
  const int64_t width = config.width;
  const int64_t queries = int64_t{config.heads} * config.head_size;
  const int64_t keys = int64_t{config.kv_heads} * config.head_size;
  std::vector<TensorSpec> specs = {{"model.embed_tokens.weight", {config.vocabulary, width}}};
  for (int layer = 0; layer < config.layers; ++layer) {
    const auto add = [&](std::string_view name, std::vector<int64_t> shape) {
      specs.push_back({fmt::format("model.layers.{}.{}", layer, name), std::move(shape)});
    };
    add("input_layernorm.weight", {width});
    if (config.latent.rank > 0) {
      add_latent(config, add);
    } else {
      add("self_attn.q_proj.weight", {queries, width});
      add("self_attn.k_proj.weight", {keys, width});
      add("self_attn.v_proj.weight", {keys, width});
      if (config.qkv_bias) {
        add("self_attn.q_proj.bias", {queries});
        add("self_attn.k_proj.bias", {keys});
        add("self_attn.v_proj.bias", {keys});
      }
      if (config.qk_norm) {
        add("self_attn.q_norm.weight", {config.head_size});
        add("self_attn.k_norm.weight", {config.head_size});
      }
      add("self_attn.o_proj.weight", {width, queries});
    }
    if (config.output_bias) add("self_attn.o_proj.bias", {width});
    if (config.post_norms) add("post_self_attn_layernorm.weight", {width});
    add("post_attention_layernorm.weight", {width});
    if (config.post_norms) add("post_mlp_layernorm.weight", {width});
    const auto add_mlp = [&](const std::string& prefix, int64_t mlp_width) {
      if (config.fused_gate_up) {
        add(prefix + "gate_up_proj.weight", {2 * mlp_width, width});
      } else {
        add(prefix + "gate_proj.weight", {mlp_width, width});
        add(prefix + "up_proj.weight", {mlp_width, width});
      }
      add(prefix + "down_proj.weight", {width, mlp_width});
    };
    if (!config.has_experts(layer)) {
      add_mlp("mlp.", config.mlp_width);
      continue;
    }
    add("mlp.gate.weight", {config.experts.count, width});
    if (config.experts.sigmoid) add("mlp.gate.e_score_correction_bias", {config.experts.count});
    if (config.experts.shared_width > 0) add_mlp("mlp.shared_experts.", config.experts.shared_width);
    for (int expert = 0; expert < config.experts.count; ++expert) {
      add_mlp(fmt::format("mlp.experts.{}.", expert), config.experts.width);
    }
  }
  specs.push_back({"model.norm.weight", {width}});
  if (!config.tied_embeddings) specs.push_back({"lm_head.weight", {config.vocabulary, width}});
  return specs;
}

int64_t parameter_count(const ModelConfig& config) {
  int64_t count = 0;
  for (const TensorSpec& spec : tensor_specs(config)) {
    int64_t size = 1;
    for (const int64_t extent : spec.shape) size *= extent;
    count += size;
  }
  return count;
}

int64_t active_parameter_count(const ModelConfig& config) {
  const ExpertsConfig& experts = config.experts;
  int64_t idle = 0;
  for (int layer = 0; layer < config.layers; ++layer) {
    if (config.has_experts(layer)) idle += int64_t{experts.count - experts.top_k} * 3 * experts.width * config.width;
  }
  return parameter_count(config) - idle;
}

bool ModelConfig::has_experts(int layer) const {
  return experts.count > 0 && layer >= experts.first && (layer + 1) % experts.every == 0 &&
         !std::binary_search(experts.except.begin(), experts.except.end(), layer);
}

}  // namespace tandem::model
