#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"

namespace tandem::model {
namespace {

constexpr std::array<std::string_view, 6> kFamilies = {"llama", "qwen2", "qwen3", "qwen3_moe", "glm4", "glm4_moe"};
constexpr std::array<std::string_view, 4> kRopeNames = {"default", "linear", "llama3", "yarn"};

bool has(const Json& json, std::string_view key) {
  const auto found = json.find(key);
  return found != json.end() && !found->is_null();
}

class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  // A whole number of at least 1; `otherwise` where the key is absent, an error where that is absent too.
  Result<int> size(std::string_view key, std::optional<int> otherwise = std::nullopt) const {
    if (!has(json_, key)) {
      if (otherwise) return *otherwise;
      return fail(Status::invalid(fmt::format("lacks {}", key)));
    }
    constexpr int kMost = 1 << 27;
    const Json& value = json_[std::string(key)];
    if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > kMost) {
      return fail(Status::invalid(fmt::format("{} is {}, not a whole number from 1 to {}", key, value.dump(), kMost)));
    }
    return static_cast<int>(value.get<int64_t>());
  }

  Result<double> number(std::string_view key, std::optional<double> otherwise = std::nullopt) const {
    if (!has(json_, key)) {
      if (otherwise) return *otherwise;
      return fail(Status::invalid(fmt::format("lacks {}", key)));
    }
    const Json& value = json_[std::string(key)];
    if (!value.is_number() || !(value.get<double>() > 0) || value.get<double>() > 1e15) {
      return fail(Status::invalid(fmt::format("{} is {}, not a positive number", key, value.dump())));
    }
    return value.get<double>();
  }

  Result<bool> flag(std::string_view key, bool otherwise) const {
    if (!has(json_, key)) return otherwise;
    const Json& value = json_[std::string(key)];
    if (!value.is_boolean()) return fail(Status::invalid(fmt::format("{} is {}, not a bool", key, value.dump())));
    return value.get<bool>();
  }

  Result<std::string> text(std::string_view key, std::string otherwise) const {
    if (!has(json_, key)) return otherwise;
    const Json& value = json_[std::string(key)];
    if (!value.is_string()) return fail(Status::invalid(fmt::format("{} is {}, not a string", key, value.dump())));
    return value.get<std::string>();
  }

  // One number or a list of them, none negative.
  Result<std::vector<int32_t>> numbers(std::string_view key, std::string_view what) const {
    std::vector<int32_t> ids;
    if (!has(json_, key)) return ids;
    const Json& value = json_[std::string(key)];
    const Json list = value.is_array() ? value : Json::array({value});
    for (const Json& id : list) {
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
        return fail(Status::invalid(fmt::format("{} is {}, not a {} or a list of them", key, value.dump(), what)));
      }
      ids.push_back(static_cast<int32_t>(id.get<int64_t>()));
    }
    return ids;
  }
  Result<std::vector<TokenId>> tokens(std::string_view key) const { return numbers(key, "token id"); }

 private:
  const Json& json_;
};

// `partial` is the share of a head that rotates where the config does not say, of families that rotate a part; the
// others refuse another share than all of it.
Result<RopeConfig> read_rope(const Json& json, int max_positions, std::optional<double> partial) {
  RopeConfig rope;
  rope.partial = TRY(Reader(json).number("partial_rotary_factor", partial.value_or(1)));
  rope.theta = TRY(Reader(json).number("rope_theta", 10000));
  const char* key = has(json, "rope_parameters") ? "rope_parameters" : "rope_scaling";
  const Json none = Json::object();
  const Json& scaling = has(json, key) ? json[key] : none;
  if (!scaling.is_object()) return fail(Status::invalid(fmt::format("{} is not an object", key)));
  const Reader reader(scaling);
  rope.theta = TRY(reader.number("rope_theta", rope.theta));
  const std::string name = TRY(reader.text("rope_type", TRY(reader.text("type", "default"))));
  const auto kind = std::find(kRopeNames.begin(), kRopeNames.end(), name);
  if (kind == kRopeNames.end()) {
    return fail(
        Status::invalid(fmt::format("{}.rope_type \"{}\" is not one of {}", key, name, fmt::join(kRopeNames, ", "))));
  }
  rope.kind = static_cast<RopeKind>(kind - kRopeNames.begin());
  rope.partial = TRY(reader.number("partial_rotary_factor", rope.partial));
  if (!partial && rope.partial != 1) return fail(Status::invalid("partial_rotary_factor is not 1"));
  if (rope.partial > 1) return fail(Status::invalid(fmt::format("partial_rotary_factor {} is above 1", rope.partial)));
  if (rope.kind == RopeKind::kDefault) return rope;
  rope.factor = TRY(reader.number("factor"));
  if (rope.kind == RopeKind::kLlama3) {
    rope.low_frequency_factor = TRY(reader.number("low_freq_factor"));
    rope.high_frequency_factor = TRY(reader.number("high_freq_factor"));
    rope.original_max_positions = TRY(reader.size("original_max_position_embeddings"));
    if (!(rope.low_frequency_factor < rope.high_frequency_factor)) {
      return fail(Status::invalid(fmt::format("{}: low_freq_factor is not below high_freq_factor", key)));
    }
  }
  if (rope.kind == RopeKind::kYarn) {
    rope.original_max_positions = TRY(reader.size("original_max_position_embeddings", max_positions));
    rope.beta_fast = TRY(reader.number("beta_fast", 32));
    rope.beta_slow = TRY(reader.number("beta_slow", 1));
    rope.truncate = TRY(reader.flag("truncate", true));
    if (has(scaling, "attention_factor")) rope.attention_factor = TRY(reader.number("attention_factor"));
    for (const char* unread : {"mscale", "mscale_all_dim"}) {
      if (has(scaling, unread)) return fail(Status::invalid(fmt::format("{}.{} is not supported", key, unread)));
    }
  }
  return rope;
}

// A whole number that may be 0.
Result<int> count_of(const Json& json, std::string_view key, int otherwise) {
  if (has(json, key) && json[std::string(key)] == 0) return 0;
  return Reader(json).size(key, otherwise);
}

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
  return Reader(json).size(found != nullptr ? found : *names.begin());
}

// Of GLM-4-MoE: routers of sigmoids, a shared expert, the first layers dense.
Result<ExpertsConfig> read_experts(const Json& json, bool glm, int layers) {
  const Reader reader(json);
  ExpertsConfig experts;
  experts.sigmoid = glm;
  experts.width = TRY(reader.size("moe_intermediate_size"));
  if (glm) {
    experts.scale = TRY(reader.number("routed_scaling_factor", 1));
    experts.shared_width = TRY(count_of(json, "n_shared_experts", 1)) * experts.width;
    experts.first = TRY(count_of(json, "first_k_dense_replace", 1));
  }
  for (const char* unread : {"n_shared_experts", "num_shared_experts", "shared_expert_intermediate_size"}) {
    if (!glm && has(json, unread) && json[unread] != 0) {
      return fail(
          Status::invalid(fmt::format("{} is {}: shared experts are not supported", unread, json[unread].dump())));
    }
  }
  for (const char* unread : {"n_group", "topk_group", "routed_scaling_factor"}) {
    if (glm && std::string_view(unread) == "routed_scaling_factor") continue;
    if (has(json, unread) && json[unread] != 1) {
      return fail(Status::invalid(fmt::format("{} is {}: only 1 is supported", unread, json[unread].dump())));
    }
  }
  const std::string expected = glm ? "sigmoid" : "softmax", scoring = TRY(reader.text("scoring_func", expected));
  if (scoring != expected) {
    return fail(Status::invalid(fmt::format("scoring_func \"{}\" is not {}", scoring, expected)));
  }
  experts.count = TRY(size_of_names(json, {"num_experts", "num_local_experts", "n_routed_experts"}));
  experts.chosen = TRY(reader.size("num_experts_per_tok"));
  experts.normalise = TRY(reader.flag("norm_topk_prob", glm));
  experts.every = TRY(reader.size("decoder_sparse_step", 1));
  if (experts.chosen > experts.count) {
    return fail(Status::invalid(
        fmt::format("num_experts_per_tok is {}, but there are {} experts", experts.chosen, experts.count)));
  }
  experts.except = TRY(reader.numbers("mlp_only_layers", "layer"));
  std::sort(experts.except.begin(), experts.except.end());
  if (!experts.except.empty() && experts.except.back() >= layers) {
    return fail(Status::invalid(
        fmt::format("mlp_only_layers names layer {}, but there are {}", experts.except.back(), layers)));
  }
  return experts;
}

// What changes the computation and is not implemented.
Status refuse_unknown_parts(const Json& json, const Reader& reader) {
  if (has(json, "quantization_config")) {
    std::string method = "unnamed";
    if (json["quantization_config"].is_object() && has(json["quantization_config"], "quant_method")) {
      method = json["quantization_config"]["quant_method"].dump();
    }
    return Status::invalid(fmt::format("quantization_config ({}) is not supported", method))
        .hint("load the checkpoint of the model that was not quantised");
  }
  const std::string activation = TRY(reader.text("hidden_act", "silu"));
  if (activation != "silu") return Status::invalid(fmt::format("hidden_act \"{}\" is not silu", activation));
  if (TRY(reader.flag("mlp_bias", false))) return Status::invalid("mlp_bias is not supported");
  const bool window = has(json, "sliding_window") && TRY(reader.flag("use_sliding_window", false));
  if (window) return Status::invalid("use_sliding_window is not supported");
  if (TRY(reader.size("pretraining_tp", 1)) != 1) return Status::invalid("pretraining_tp is not 1");
  if (has(json, "layer_types")) {
    for (const Json& type : json["layer_types"]) {
      if (type != "full_attention") return Status::invalid(fmt::format("layer type {} is not supported", type.dump()));
    }
  }
  return {};
}

Result<ModelConfig> read_object(const Json& json) {
  if (!json.is_object()) return fail(Status::invalid("is not an object"));
  const Reader reader(json);
  ModelConfig config;
  config.family = TRY(reader.text("model_type", ""));
  if (std::find(kFamilies.begin(), kFamilies.end(), config.family) == kFamilies.end()) {
    return fail(
        Status::invalid(fmt::format("model_type \"{}\" is not one of {}", config.family, fmt::join(kFamilies, ", "))));
  }
  TRY(refuse_unknown_parts(json, reader));
  config.layers = TRY(reader.size("num_hidden_layers"));
  config.width = TRY(reader.size("hidden_size"));
  config.heads = TRY(reader.size("num_attention_heads"));
  const bool llama = config.family == "llama";
  // The Qwen classes of transformers have defaults of one model's sizes; a checkpoint that leans on them is not
  // trusted.
  config.kv_heads = TRY(reader.size("num_key_value_heads", llama ? std::optional(config.heads) : std::nullopt));
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
  const bool biased = config.family != "qwen2" && TRY(reader.flag("attention_bias", glm4));
  config.qkv_bias = biased || config.family == "qwen2";
  config.output_bias = biased && !glm4 && !glm4_moe;
  config.post_norms = config.fused_gate_up = glm4;
  config.rope = TRY(read_rope(json, config.max_positions, glm4 || glm4_moe ? std::optional(0.5) : std::nullopt));
  config.rope.interleaved = glm4;
  if (config.family == "qwen3_moe" || glm4_moe) config.experts = TRY(read_experts(json, glm4_moe, config.layers));
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

int rotated_size(const ModelConfig& config) { return static_cast<int>(config.head_size * config.rope.partial); }

Status check(const ModelConfig& config) {
  if (config.heads % config.kv_heads != 0) {
    return Status::invalid(fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}",
                                       config.heads, config.kv_heads));
  }
  if (config.head_size % 2 != 0) return Status::invalid(fmt::format("head_dim {} is odd", config.head_size));
  if (rotated_size(config) < 2 || rotated_size(config) % 2 != 0) {
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
    auto eos = Reader(*generation).tokens("eos_token_id");
    if (!eos) return fail(std::move(eos).error().at(generation_path.string()));
    if (!eos->empty()) config->eos_tokens = std::move(*eos);
  }
  return config;
}

namespace {

void put_special_tokens(const ModelConfig& config, Json& json) {
  if (config.bos_token) json["bos_token_id"] = *config.bos_token;
  if (config.eos_tokens.size() == 1) json["eos_token_id"] = config.eos_tokens[0];
  if (config.eos_tokens.size() > 1) json["eos_token_id"] = config.eos_tokens;
  if (config.pad_token) json["pad_token_id"] = *config.pad_token;
}

}  // namespace

Json to_json(const ModelConfig& config) {
  constexpr std::array<const char*, kFamilies.size()> kArchitectures = {"LlamaForCausalLM", "Qwen2ForCausalLM",
                                                                        "Qwen3ForCausalLM", "Qwen3MoeForCausalLM",
                                                                        "Glm4ForCausalLM",  "Glm4MoeForCausalLM"};
  const auto family = std::find(kFamilies.begin(), kFamilies.end(), config.family) - kFamilies.begin();
  Json json = {{"architectures", {kArchitectures.at(family)}},
               {"model_type", config.family},
               {"vocab_size", config.vocabulary},
               {"hidden_size", config.width},
               {"intermediate_size", config.mlp_width},
               {"num_hidden_layers", config.layers},
               {"num_attention_heads", config.heads},
               {"num_key_value_heads", config.kv_heads},
               {"head_dim", config.head_size},
               {"hidden_act", "silu"},
               {"max_position_embeddings", config.max_positions},
               {"initializer_range", 0.02},
               {"rms_norm_eps", config.norm_epsilon},
               {"use_cache", true},
               {"tie_word_embeddings", config.tied_embeddings},
               {"attention_dropout", 0.0},
               {"rope_theta", config.rope.theta},
               {"rope_scaling", nullptr}};
  if (config.family != "qwen2") json["attention_bias"] = config.qkv_bias;
  if (config.family.starts_with("qwen")) json["use_sliding_window"] = false;
  if (config.family.starts_with("glm4")) json["partial_rotary_factor"] = config.rope.partial;
  const RopeConfig& rope = config.rope;
  if (rope.kind != RopeKind::kDefault) {
    Json scaling = {{"rope_type", kRopeNames[static_cast<size_t>(rope.kind)]}, {"factor", rope.factor}};
    if (rope.kind == RopeKind::kLlama3) {
      scaling["low_freq_factor"] = rope.low_frequency_factor;
      scaling["high_freq_factor"] = rope.high_frequency_factor;
    }
    if (rope.kind != RopeKind::kLinear) scaling["original_max_position_embeddings"] = rope.original_max_positions;
    if (rope.kind == RopeKind::kYarn) {
      scaling["beta_fast"] = rope.beta_fast;
      scaling["beta_slow"] = rope.beta_slow;
      scaling["truncate"] = rope.truncate;
      if (rope.attention_factor) scaling["attention_factor"] = *rope.attention_factor;
    }
    json["rope_scaling"] = scaling;
  }
  if (const ExpertsConfig& experts = config.experts; experts.count > 0) {
    const bool glm = config.family == "glm4_moe";
    json[glm ? "n_routed_experts" : "num_experts"] = experts.count;
    json["num_experts_per_tok"] = experts.chosen;
    json["moe_intermediate_size"] = experts.width;
    json["norm_topk_prob"] = experts.normalise;
    if (glm) {
      json["n_shared_experts"] = experts.shared_width / experts.width;
      json["first_k_dense_replace"] = experts.first;
      json["routed_scaling_factor"] = experts.scale;
      json["n_group"] = json["topk_group"] = 1;
      json["use_qk_norm"] = config.qk_norm;
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
  return json;
}

Json generation_config_json(const ModelConfig& config) {
  Json json = {{"_from_model_config", true}};
  put_special_tokens(config, json);
  return json;
}

}  // namespace tandem::model
