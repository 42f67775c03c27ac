#include "model/parameters.h"

#include <fmt/format.h>

#include "kernels/attention.h"

namespace tandem::model {

namespace {

Status check_computable(const ModelConfig& config) {
  const auto refuse = [](const char* what) {
    return Status::invalid(fmt::format("the transformer does not compute {}", what));
  };
  if (const LatentConfig& latent = config.latent; latent.rank > 0) {
    if (latent.rank % 2 != 0 || latent.query_rank % 2 != 0 || latent.plain % 2 != 0 || latent.value % 2 != 0)
      return refuse("odd sizes of latents or of their heads");
    if (latent.rank + latent.rope_dim > 576)
      return refuse("kv_lora_rank and qk_rope_head_dim of more than 576 together");
  } else if (config.head_size % 2 != 0 || config.head_size > kernels::kMaxHeadSize) {
    return refuse("head sizes that are odd or above 576");
  }
  if (config.width % 2 != 0 || config.mlp_width % 2 != 0 || config.experts.width % 2 != 0) {
    return refuse("odd widths of states or MLPs");
  }
  return {};
}

}  // namespace

Result<ParameterLayout> parameter_layout(const ModelConfig& config) {
  TRY(check_computable(config));
  ParameterLayout layout;
  const auto add = [&](std::string name, int columns, bool matrix, std::vector<std::pair<std::string, int>> parts) {
    Parameter parameter{
        .name = std::move(name), .offset = layout.elements, .columns = columns, .matrix = matrix, .parts = {}};
    for (auto& [part, rows] : parts) {
      parameter.parts.push_back({std::move(part), parameter.rows, rows});
      parameter.rows += rows;
    }
    layout.elements += (parameter.elements() + 63) / 64 * 64;  // every parameter starts on a cache line in any dtype
    layout.parameters.push_back(std::move(parameter));
    return static_cast<int>(layout.parameters.size()) - 1;
  };
  const LatentConfig& latent = config.latent;
  const int query = config.heads * config.head_size, key = config.kv_heads * config.head_size;
  const int attended = latent.rank > 0 ? config.heads * latent.value : query;
  layout.embedding = add("embedding", config.width, true, {{"model.embed_tokens.weight", config.vocabulary}});
  for (int i = 0; i < config.layers; ++i) {
    const std::string ours = fmt::format("layers.{}.", i), theirs = fmt::format("model.layers.{}.", i);
    LayerParameters layer;
    layer.attention_norm = add(ours + "attention_norm", config.width, false, {{theirs + "input_layernorm.weight", 1}});
    const auto qkv_parts = [&](const char* kind) -> std::vector<std::pair<std::string, int>> {
      const auto name = [&](const char* projection) {
        return fmt::format("{}self_attn.{}.{}", theirs, projection, kind);
      };
      if (latent.rank == 0) return {{name("q_proj"), query}, {name("k_proj"), key}, {name("v_proj"), key}};
      const std::pair queries =
          latent.query_rank > 0 ? std::pair(name("q_a_proj"), latent.query_rank) : std::pair(name("q_proj"), query);
      return {queries, {name("kv_a_proj_with_mqa"), latent.rank + latent.rope_dim}};
    };
    layer.qkv = add(ours + "qkv", config.width, true, qkv_parts("weight"));
    if (config.qkv_bias) {
      layer.qkv_bias = add(ours + "qkv_bias", 1, false, qkv_parts("bias"));
      layout.parameters.back().bias = true;
    }
    if (latent.query_rank > 0) {
      layer.query_norm =
          add(ours + "query_norm", latent.query_rank, false, {{theirs + "self_attn.q_a_layernorm.weight", 1}});
      layer.query_up = add(ours + "query_up", latent.query_rank, true, {{theirs + "self_attn.q_b_proj.weight", query}});
    }
    if (latent.rank > 0) {
      layer.key_norm = add(ours + "key_norm", latent.rank, false, {{theirs + "self_attn.kv_a_layernorm.weight", 1}});
      layer.key_value_up = add(ours + "key_value_up", latent.rank, true,
                               {{theirs + "self_attn.kv_b_proj.weight", config.heads * (latent.plain + latent.value)}});
      layout.parameters.back().groups = config.heads;
      layout.parameters.back().absorbed_rows = latent.plain;
    }
    if (config.qk_norm) {
      layer.query_norm = add(ours + "query_norm", config.head_size, false, {{theirs + "self_attn.q_norm.weight", 1}});
      layer.key_norm = add(ours + "key_norm", config.head_size, false, {{theirs + "self_attn.k_norm.weight", 1}});
    }
    layer.output = add(ours + "output", attended, true, {{theirs + "self_attn.o_proj.weight", config.width}});
    if (config.output_bias) {
      layer.output_bias = add(ours + "output_bias", 1, false, {{theirs + "self_attn.o_proj.bias", config.width}});
      layout.parameters.back().bias = true;
    }
    layer.mlp_norm = add(ours + "mlp_norm", config.width, false, {{theirs + "post_attention_layernorm.weight", 1}});
    std::vector<std::string> mlps = {theirs + "mlp."};
    int mlp_width = config.mlp_width;
    if (config.has_experts(i)) {
      layer.router = add(ours + "router", config.width, true, {{theirs + "mlp.gate.weight", config.experts.count}});
      if (config.experts.sigmoid) {
        layer.router_bias =
            add(ours + "router_bias", config.experts.count, false, {{theirs + "mlp.gate.e_score_correction_bias", 3}});
        layout.parameters.back().split = true;
      }
      if (const int shared = config.experts.shared_width; shared > 0) {
        const std::string mlp = theirs + "mlp.shared_experts.";
        layer.shared_gate_up = add(ours + "shared_gate_up", config.width, true,
                                   {{mlp + "gate_proj.weight", shared}, {mlp + "up_proj.weight", shared}});
        layer.shared_down = add(ours + "shared_down", shared, true, {{mlp + "down_proj.weight", config.width}});
      }
      mlp_width = config.experts.width;
      mlps.clear();
      for (int e = 0; e < config.experts.count; ++e) mlps.push_back(fmt::format("{}mlp.experts.{}.", theirs, e));
    }
    std::vector<std::pair<std::string, int>> gate_up, down;
    for (const std::string& mlp : mlps) {
      if (config.fused_gate_up) {
        gate_up.emplace_back(mlp + "gate_up_proj.weight", 2 * mlp_width);
      } else {
        gate_up.emplace_back(mlp + "gate_proj.weight", mlp_width);
        gate_up.emplace_back(mlp + "up_proj.weight", mlp_width);
      }
      down.emplace_back(mlp + "down_proj.weight", config.width);
    }
    layer.gate_up = add(ours + "gate_up", config.width, true, std::move(gate_up));
    layer.down = add(ours + "down", mlp_width, true, std::move(down));
    for (const int parameter : {layer.gate_up, layer.down}) {
      layout.parameters[parameter].groups = static_cast<int>(mlps.size());
    }
    if (config.post_norms) {
      layer.attention_post_norm =
          add(ours + "attention_post_norm", config.width, false, {{theirs + "post_self_attn_layernorm.weight", 1}});
      layer.mlp_post_norm =
          add(ours + "mlp_post_norm", config.width, false, {{theirs + "post_mlp_layernorm.weight", 1}});
    }
    layout.layers.push_back(layer);
  }
  layout.final_norm = add("final_norm", config.width, false, {{"model.norm.weight", 1}});
  layout.head = config.tied_embeddings ? layout.embedding
                                       : add("head", config.width, true, {{"lm_head.weight", config.vocabulary}});
  return layout;
}

}  // namespace tandem::model
