#include "model/parameters.h"

#include <fmt/format.h>

namespace tandem::model {

namespace {

Status check_computable(const ModelConfig& config) {
  const auto refuse = [](const char* what) {
    return Status::invalid(fmt::format("the transformer does not compute {}", what));
  };
  if (config.qkv_bias || config.output_bias) return refuse("attention biases (Qwen2)");
  if (config.qk_norm) return refuse("query and key norms (Qwen3)");
  if (config.rope.kind != RopeKind::kDefault) return refuse("scaled RoPE");
  if (config.head_size % 64 != 0) return refuse("head sizes that are not a multiple of 64");
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
  const int query = config.heads * config.head_size, key = config.kv_heads * config.head_size;
  layout.embedding = add("embedding", config.width, true, {{"model.embed_tokens.weight", config.vocabulary}});
  for (int i = 0; i < config.layers; ++i) {
    const std::string ours = fmt::format("layers.{}.", i), theirs = fmt::format("model.layers.{}.", i);
    layout.layers.push_back({
        .attention_norm = add(ours + "attention_norm", config.width, false, {{theirs + "input_layernorm.weight", 1}}),
        .qkv = add(ours + "qkv", config.width, true,
                   {{theirs + "self_attn.q_proj.weight", query},
                    {theirs + "self_attn.k_proj.weight", key},
                    {theirs + "self_attn.v_proj.weight", key}}),
        .output = add(ours + "output", query, true, {{theirs + "self_attn.o_proj.weight", config.width}}),
        .mlp_norm = add(ours + "mlp_norm", config.width, false, {{theirs + "post_attention_layernorm.weight", 1}}),
        .gate_up = add(
            ours + "gate_up", config.width, true,
            {{theirs + "mlp.gate_proj.weight", config.mlp_width}, {theirs + "mlp.up_proj.weight", config.mlp_width}}),
        .down = add(ours + "down", config.mlp_width, true, {{theirs + "mlp.down_proj.weight", config.width}}),
    });
  }
  layout.final_norm = add("final_norm", config.width, false, {{"model.norm.weight", 1}});
  layout.head = config.tied_embeddings ? layout.embedding
                                       : add("head", config.width, true, {{"lm_head.weight", config.vocabulary}});
  return layout;
}

}  // namespace tandem::model
