#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "model/config_reader.h"
#include "model/families.h"

namespace tandem::model {
namespace {

// The one of several names of a size that is there; where more are, they must agree.
Result<int> size_of_names(const Json& json, std::initializer_list<const char*> names) {
  const char* found = nullptr;
  for (const char* name : names) {
    if (!has(json, name)) continue;
    if (found != nullptr && json[found] != json[name]) {
      return fail(
          Status::invalid(fmt::format("{} is {}, but {} is {}", found, json[found].dump(), name, json[name].dump())));
    }
    found = name;
  }
  return ConfigReader(json).size(found != nullptr ? found : *names.begin());
}

// Of GLM-4-MoE and DeepSeek-V3: routers of sigmoids, experts in groups, a shared expert, the first layers dense.
Status read_sigmoid_routing(const Json& json, bool deepseek, ExpertsConfig& experts) {
  const ConfigReader reader(json);
  experts.sigmoid = true;
  // What DeepSeek's class of transformers has for defaults is of one model; a checkpoint that leans on it is refused.
  const auto otherwise = deepseek ? std::nullopt : std::optional(1);
  experts.scale = TRY(reader.number("routed_scaling_factor", otherwise));
  experts.shared_width = TRY(reader.count("n_shared_experts", 1)) * experts.width;
  experts.first = TRY(reader.count("first_k_dense_replace", deepseek ? 3 : 1));
  experts.groups = TRY(reader.size("n_group", otherwise));
  experts.top_k_groups = TRY(reader.size("topk_group", otherwise));
  const std::string method = TRY(reader.text("topk_method", "noaux_tc"));
  if (method != "noaux_tc") return Status::invalid(fmt::format("topk_method \"{}\" is not noaux_tc", method));
  if (TRY(reader.size("moe_layer_freq", 1)) != 1) return Status::invalid("moe_layer_freq is not 1");
  return {};
}

// What a router of a softmax could have and has not.
Status refuse_unknown_routing(const Json& json) {
  for (const char* unread : {"n_shared_experts", "num_shared_experts", "shared_expert_intermediate_size"}) {
    if (has(json, unread) && json[unread] != 0) {
      return Status::invalid(fmt::format("{} is {}: shared experts are not supported", unread, json[unread].dump()));
    }
  }
  for (const char* unread : {"n_group", "topk_group", "routed_scaling_factor"}) {
    if (has(json, unread) && json[unread] != 1) {
      return Status::invalid(fmt::format("{} is {}: only 1 is supported", unread, json[unread].dump()));
    }
  }
  return {};
}

Status check_groups(const ExpertsConfig& experts) {
  if (experts.groups == 1) return {};
  if (experts.count % experts.groups != 0 || experts.count / experts.groups < 2) {
    return Status::invalid(fmt::format("n_group {} does not part {} experts into equal groups of two at least",
                                       experts.groups, experts.count));
  }
  if (experts.top_k_groups > experts.groups || experts.top_k > experts.count / experts.groups * experts.top_k_groups) {
    return Status::invalid(fmt::format("topk_group {} of {} groups does not have {} experts", experts.top_k_groups,
                                       experts.groups, experts.top_k));
  }
  return {};
}

Result<ExpertsConfig> read_experts(const Json& json, std::string_view family, int layers) {
  const ConfigReader reader(json);
  const bool sigmoid = family != "qwen3_moe";
  ExpertsConfig experts;
  experts.width = TRY(reader.size("moe_intermediate_size"));
  if (sigmoid)
    TRY(read_sigmoid_routing(json, family != "glm4_moe", experts));
  else
    TRY(refuse_unknown_routing(json));
  const std::string expected = sigmoid ? "sigmoid" : "softmax", scoring = TRY(reader.text("scoring_func", expected));
  if (scoring != expected) {
    return fail(Status::invalid(fmt::format("scoring_func \"{}\" is not {}", scoring, expected)));
  }
  experts.count = TRY(size_of_names(json, {"num_experts", "num_local_experts", "n_routed_experts"}));
  experts.top_k = TRY(reader.size("num_experts_per_tok"));
  experts.normalise = TRY(reader.flag("norm_topk_prob", sigmoid));
  experts.every = TRY(reader.size("decoder_sparse_step", 1));
  if (experts.top_k > experts.count) {
    return fail(Status::invalid(
        fmt::format("num_experts_per_tok is {}, but there are {} experts", experts.top_k, experts.count)));
  }
  TRY(check_groups(experts));
  experts.except = TRY(reader.numbers("mlp_only_layers", "layer"));
  std::sort(experts.except.begin(), experts.except.end());
  if (!experts.except.empty() && experts.except.back() >= layers) {
    return fail(Status::invalid(
        fmt::format("mlp_only_layers names layer {}, but there are {}", experts.except.back(), layers)));
  }
  return experts;
}

// Heads' sizes as DeepSeek-V3 says them.
Status read_latent(const Json& json, ModelConfig& config) {
  const ConfigReader reader(json);
  LatentConfig& latent = config.latent;
  latent.rank = TRY(reader.size("kv_lora_rank"));
  if (!json.contains("q_lora_rank") || has(json, "q_lora_rank")) latent.query_rank = TRY(reader.size("q_lora_rank"));
  latent.plain = TRY(reader.size("qk_nope_head_dim"));
  latent.rope_dim = TRY(reader.size("qk_rope_head_dim"));
  latent.value = TRY(reader.size("v_head_dim"));
  config.head_size = latent.plain + latent.rope_dim;
  // Their class takes frequencies from it where it is there.
  const int head_dim = TRY(reader.size("head_dim", latent.rope_dim));
  if (head_dim != latent.rope_dim) {
    return Status::invalid(fmt::format("head_dim is {}, but qk_rope_head_dim is {}", head_dim, latent.rope_dim));
  }
  if (config.kv_heads != config.heads) {
    return Status::invalid(
        fmt::format("num_key_value_heads is {}, but latent attention has {} heads", config.kv_heads, config.heads));
  }
  // Their class would stretch scores by it in every kind of RoPE but the default.
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (config.rope.kind == RopeKind::kYarn || config.rope.kind == RopeKind::kDefault || !has(json, key)) continue;
    if (has(json[key], "mscale_all_dim")) return Status::invalid(fmt::format("{}: mscale_all_dim goes with yarn", key));
  }
  if (config.qkv_bias && latent.query_rank == 0) {
    return Status::invalid("attention_bias goes with q_lora_rank");
  }
  return {};
}

// Weights in E4M3 with a scale for each 128 x 128 block are read; that activations were quantised on the way, too, says
// how a checkpoint is served, not what it is.
Status check_quantisation(const Json& quantisation) {
  const char* hint = "load the checkpoint of the model that was not quantised";
  if (!quantisation.is_object()) return Status::invalid("quantization_config is not an object");
  const ConfigReader reader(quantisation);
  const std::string method = TRY(reader.text("quant_method", "unnamed"));
  if (method != "fp8") {
    return Status::invalid(fmt::format("quantization_config.quant_method \"{}\" is not fp8", method)).hint(hint);
  }
  const Json block = has(quantisation, "weight_block_size") ? quantisation["weight_block_size"] : Json();
  if (block != Json::array({128, 128})) {
    return Status::invalid(fmt::format("quantization_config.weight_block_size is {}, not [128,128]", block.dump()))
        .hint(hint);
  }
  const std::string format = TRY(reader.text("fmt", "e4m3"));
  if (format != "e4m3") {
    return Status::invalid(fmt::format("quantization_config.fmt \"{}\" is not e4m3", format)).hint(hint);
  }
  return {};
}

// What changes the computation and is not implemented.
Status refuse_unknown_parts(const Json& json, const ConfigReader& reader) {
  if (has(json, "quantization_config")) TRY(check_quantisation(json["quantization_config"]));
  const std::string activation = TRY(reader.text("hidden_act", "silu"));
  if (activation != "silu") return Status::invalid(fmt::format("hidden_act \"{}\" is not silu", activation));
  if (TRY(reader.flag("mlp_bias", false))) return Status::invalid("mlp_bias is not supported");
  if (TRY(reader.size("pretraining_tp", 1)) != 1) return Status::invalid("pretraining_tp is not 1");
  return {};
}

// Which layers slide, and how far they see, by the rules of each family's class in transformers: of Mistral all do
// unless sliding_window is null, of Qwen only where use_sliding_window says so: those that layer_types names, or from
// max_window_layers on, or (Qwen3-MoE) all.
Status read_window(const Json& json, ModelConfig& config) {
  const ConfigReader reader(json);
  const bool mistral = config.family == "mistral", qwen = config.family.starts_with("qwen");
  const bool by_layer = config.family == "qwen2" || config.family == "qwen3";
  const bool none = json.contains("sliding_window") && !has(json, "sliding_window");
  const bool slides = !none && (mistral || TRY(reader.flag("use_sliding_window", false)));
  if (slides && !mistral && !qwen) {
    return Status::invalid(fmt::format("use_sliding_window is not supported for {}", config.family));
  }
  std::vector<bool> sliding(config.layers, slides);
  if (slides && by_layer)
    std::fill_n(sliding.begin(), std::min(config.layers, TRY(reader.count("max_window_layers", 28))), false);
  if (has(json, "layer_types")) {
    const Json& types = json["layer_types"];
    if (!types.is_array() || types.size() != sliding.size()) {
      return Status::invalid(fmt::format("layer_types is not a list of {} names", config.layers));
    }
    for (int layer = 0; layer < config.layers; ++layer) {
      const bool named = types[layer] == "sliding_attention", full = types[layer] == "full_attention";
      if ((!named && !full) || (named != sliding[layer] && !(slides && by_layer))) {
        return Status::invalid(fmt::format("layer type {} of layer {} is not supported", types[layer].dump(), layer));
      }
      sliding[layer] = named;
    }
  }
  if (std::find(sliding.begin(), sliding.end(), true) == sliding.end()) return {};
  config.window = TRY(reader.size("sliding_window", 4096));
  config.sliding = std::move(sliding);
  return {};
}

Result<ModelConfig> read_object(const Json& json) {
  if (!json.is_object()) return fail(Status::invalid("is not an object"));
  const ConfigReader reader(json);
  ModelConfig config;
  config.family = TRY(reader.text("model_type", ""));
  if (family_named(config.family) == nullptr) {
    std::string known;
    for (const Family& family : kFamilies) known += fmt::format("{}{}", known.empty() ? "" : ", ", family.name);
    return fail(Status::invalid(fmt::format("model_type \"{}\" is not one of {}", config.family, known)));
  }
  TRY(refuse_unknown_parts(json, reader));
  config.layers = TRY(reader.size("num_hidden_layers"));
  config.width = TRY(reader.size("hidden_size"));
  config.heads = TRY(reader.size("num_attention_heads"));
  const bool llama = config.family == "llama" || config.family == "mistral";
  const bool deepseek = config.family == "deepseek_v3" || config.family == "kimi_k2";
  // The Qwen classes of transformers have defaults of one model's sizes; a checkpoint that leans on them is not
  // trusted.
  config.kv_heads =
      TRY(reader.size("num_key_value_heads", llama || deepseek ? std::optional(config.heads) : std::nullopt));
  const bool qwen3 = config.family == "qwen3" || config.family == "qwen3_moe";
  config.head_size =
      TRY(reader.size("head_dim", qwen3 ? std::nullopt : std::optional(std::max(1, config.width / config.heads))));
  config.mlp_width = TRY(reader.size("intermediate_size"));
  config.vocabulary = TRY(reader.size("vocab_size"));
  config.max_positions = TRY(reader.size("max_position_embeddings"));
  const bool glm4 = config.family == "glm4", glm4_moe = config.family == "glm4_moe";
  config.norm_epsilon = TRY(reader.number("rms_norm_eps", glm4 || glm4_moe ? std::nullopt : std::optional(1e-6)));
  config.tied_embeddings = TRY(reader.flag("tie_word_embeddings", false));
  config.qk_norm = qwen3 || (glm4_moe && TRY(reader.flag("use_qk_norm", false)));
  const bool biased =
      config.family != "qwen2" && config.family != "mistral" && TRY(reader.flag("attention_bias", glm4));
  config.qkv_bias = biased || config.family == "qwen2";
  config.output_bias = biased && !glm4 && !glm4_moe;
  config.post_norms = config.fused_gate_up = glm4;
  config.rope = TRY(read_rope(json, config.max_positions, glm4 || glm4_moe ? std::optional(0.5) : std::nullopt));
  config.rope.interleaved = glm4 || (deepseek && TRY(reader.flag("rope_interleave", true)));
  TRY(read_window(json, config));
  if (deepseek) TRY(read_latent(json, config));
  if (config.family == "qwen3_moe" || glm4_moe || deepseek)
    config.experts = TRY(read_experts(json, config.family, config.layers));
  const std::string dtype_key = has(json, "dtype") ? "dtype" : "torch_dtype";
  const std::string dtype = TRY(reader.text(dtype_key, "float32"));
  const auto known = dtype_from_torch(dtype);
  if (known != DType::kF32 && known != DType::kBF16 && known != DType::kF16) {
    return fail(Status::invalid(fmt::format("{} \"{}\" is not one of float32, bfloat16, float16", dtype_key, dtype)));
  }
  config.dtype = *known;
  config.eos_tokens = TRY(reader.tokens("eos_token_id"));
  const auto bos = TRY(reader.tokens("bos_token_id"));
  if (!bos.empty()) config.bos_token = bos[0];
  const auto pad = TRY(reader.tokens("pad_token_id"));
  if (!pad.empty()) config.pad_token = pad[0];
  TRY(check(config));
  return config;
}

}  // namespace

int rope_dim(const ModelConfig& config) {
  return config.latent.rank > 0 ? config.latent.rope_dim : static_cast<int>(config.head_size * config.rope.partial);
}

Status check(const ModelConfig& config) {
  if (config.heads % config.kv_heads != 0) {
    return Status::invalid(fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}",
                                       config.heads, config.kv_heads));
  }
  if (config.latent.rank > 0) {
    const int rope_dim = config.latent.rope_dim;
    return rope_dim % 2 == 0 ? Status() : Status::invalid(fmt::format("qk_rope_head_dim {} is odd", rope_dim));
  }
  if (config.head_size % 2 != 0) return Status::invalid(fmt::format("head_dim {} is odd", config.head_size));
  if (rope_dim(config) < 2 || rope_dim(config) % 2 != 0) {
    return Status::invalid(fmt::format("head_dim {} times partial_rotary_factor {} is not an even number",
                                       config.head_size, config.rope.partial));
  }
  return {};
}

Result<ModelConfig> config_from_json(const Json& json) { return read_object(json); }

Result<ModelConfig> read_config(const fs::path& directory) {
  const fs::path path = directory / "config.json";
  constexpr uint64_t kLimit = 16 << 20;
  const std::string text = TRY(read_file(path, kLimit));
  const auto json = parse_json(text);
  if (!json) return fail(Status(json.error()).at(path.string()));
  auto config = read_object(*json);
  if (!config) return fail(std::move(config).error().at(path.string()));
  const fs::path generation_path = directory / "generation_config.json";
  std::error_code ignored;
  if (fs::exists(generation_path, ignored)) {
    const auto generation = parse_json(TRY(read_file(generation_path, kLimit)));
    if (!generation) return fail(Status(generation.error()).at(generation_path.string()));
    auto eos = ConfigReader(*generation).tokens("eos_token_id");
    if (!eos) return fail(std::move(eos).error().at(generation_path.string()));
    if (!eos->empty()) config->eos_tokens = std::move(*eos);
  }
  return config;
}

}  // namespace tandem::model
