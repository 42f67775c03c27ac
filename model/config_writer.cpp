// A config as transformers and vLLM read it.
#include <algorithm>

#include "model/config.h"
#include "model/families.h"

namespace tandem::model {

namespace {

void put_special_tokens(const ModelConfig& config, Json& json) {
  if (config.bos_token) json["bos_token_id"] = *config.bos_token;
  if (config.eos_tokens.size() == 1) json["eos_token_id"] = config.eos_tokens[0];
  if (config.eos_tokens.size() > 1) json["eos_token_id"] = config.eos_tokens;
  if (config.pad_token) json["pad_token_id"] = *config.pad_token;
}

// Of Mistral a window is there unless it is null; of Qwen only where use_sliding_window says so.
void put_window(const ModelConfig& config, Json& json) {
  if (config.family == "mistral") json["sliding_window"] = nullptr;
  if (config.family.starts_with("qwen")) json["use_sliding_window"] = config.window > 0;
  if (config.window == 0) return;
  json["sliding_window"] = config.window;
  if (config.family != "qwen2" && config.family != "qwen3") return;
  const auto first = std::find(config.sliding.begin(), config.sliding.end(), true);
  json["max_window_layers"] = first - config.sliding.begin();
  for (const bool slides : config.sliding)
    json["layer_types"].push_back(slides ? "sliding_attention" : "full_attention");
}

void put_latent(const ModelConfig& config, Json& json) {
  const LatentConfig& latent = config.latent;
  json["kv_lora_rank"] = latent.rank;
  json["q_lora_rank"] = nullptr;
  if (latent.query_rank > 0) json["q_lora_rank"] = latent.query_rank;
  json["qk_nope_head_dim"] = latent.plain;
  json["qk_rope_head_dim"] = latent.rope_dim;
  json["v_head_dim"] = latent.value;
  json["rope_interleave"] = config.rope.interleaved;
  json["scoring_func"] = "sigmoid";
  json["topk_method"] = "noaux_tc";
  json["moe_layer_freq"] = 1;
}

}  // namespace

Json to_json(const ModelConfig& config) {
  Json json = {{"architectures", {family_named(config.family)->architecture}},
               {"model_type", config.family},
               {"vocab_size", config.vocabulary},
               {"hidden_size", config.width},
               {"intermediate_size", config.mlp_width},
               {"num_hidden_layers", config.layers},
               {"num_attention_heads", config.heads},
               {"num_key_value_heads", config.kv_heads},
               {"hidden_act", "silu"},
               {"max_position_embeddings", config.max_positions},
               {"initializer_range", 0.02},
               {"rms_norm_eps", config.norm_epsilon},
               {"use_cache", true},
               {"tie_word_embeddings", config.tied_embeddings},
               {"attention_dropout", 0.0}};
  const bool latent = config.latent.rank > 0;
  if (latent)
    put_latent(config, json);
  else
    json["head_dim"] = config.head_size;
  put_rope(config.rope, json);
  put_window(config, json);
  if (config.family != "qwen2" && config.family != "mistral") json["attention_bias"] = config.qkv_bias;
  if (config.family.starts_with("glm4")) json["partial_rotary_factor"] = config.rope.partial;
  if (const ExpertsConfig& experts = config.experts; experts.count > 0) {
    json[experts.sigmoid ? "n_routed_experts" : "num_experts"] = experts.count;
    json["num_experts_per_tok"] = experts.top_k;
    json["moe_intermediate_size"] = experts.width;
    json["norm_topk_prob"] = experts.normalise;
    if (experts.sigmoid) {
      json["n_shared_experts"] = experts.shared_width / experts.width;
      json["first_k_dense_replace"] = experts.first;
      json["routed_scaling_factor"] = experts.scale;
      json["n_group"] = experts.groups;
      json["topk_group"] = experts.top_k_groups;
      if (!latent) json["use_qk_norm"] = config.qk_norm;
      json["num_nextn_predict_layers"] = 0;
    } else {
      json["decoder_sparse_step"] = experts.every;
      json["mlp_only_layers"] = experts.except;
    }
  }
  json["torch_dtype"] = torch_name(config.dtype);
  put_special_tokens(config, json);
  // Without a word the class of transformers takes one that its own vocabulary has.
  if (config.family.starts_with("glm4") && !config.pad_token) json["pad_token_id"] = nullptr;
  if (latent && config.eos_tokens.empty()) json["eos_token_id"] = nullptr;
  if (latent && !config.bos_token) json["bos_token_id"] = nullptr;
  return json;
}

Json generation_config_json(const ModelConfig& config) {
  Json json = {{"_from_model_config", true}};
  put_special_tokens(config, json);
  return json;
}

}  // namespace tandem::model
