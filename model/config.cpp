#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"

namespace tandem::model {
namespace {

constexpr std::array<std::string_view, 3> kFamilies = {"llama", "qwen2", "qwen3"};
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

  // One id or a list of them.
  Result<std::vector<TokenId>> tokens(std::string_view key) const {
    std::vector<TokenId> ids;
    if (!has(json_, key)) return ids;
    const Json& value = json_[std::string(key)];
    const Json list = value.is_array() ? value : Json::array({value});
    for (const Json& id : list) {
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
        return fail(Status::invalid(fmt::format("{} is {}, not a token id or a list of them", key, value.dump())));
      }
      ids.push_back(static_cast<TokenId>(id.get<int64_t>()));
    }
    return ids;
  }

 private:
  const Json& json_;
};

Result<RopeConfig> read_rope(const Json& json, int max_positions) {
  RopeConfig rope;
  rope.theta = TRY(Reader(json).number("rope_theta", 10000));
  const char* key = has(json, "rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!has(json, key)) return rope;
  const Json& scaling = json[key];
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
  if (TRY(reader.number("partial_rotary_factor", 1)) != 1) {
    return fail(Status::invalid(fmt::format("{}.partial_rotary_factor is not 1", key)));
  }
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
  if (TRY(reader.number("partial_rotary_factor", 1)) != 1) return Status::invalid("partial_rotary_factor is not 1");
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
  config.head_size = TRY(reader.size(
      "head_dim", config.family == "qwen3" ? std::nullopt : std::optional(std::max(1, config.width / config.heads))));
  config.mlp_width = TRY(reader.size("intermediate_size"));
  config.vocabulary = TRY(reader.size("vocab_size"));
  config.max_positions = TRY(reader.size("max_position_embeddings"));
  config.norm_epsilon = TRY(reader.number("rms_norm_eps", 1e-6));
  config.tied_embeddings = TRY(reader.flag("tie_word_embeddings", false));
  config.qk_norm = config.family == "qwen3";
  const bool biased = config.family != "qwen2" && TRY(reader.flag("attention_bias", false));
  config.qkv_bias = biased || config.family == "qwen2";
  config.output_bias = biased;
  config.rope = TRY(read_rope(json, config.max_positions));
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

Status check(const ModelConfig& config) {
  if (config.heads % config.kv_heads != 0) {
    return Status::invalid(fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}",
                                       config.heads, config.kv_heads));
  }
  if (config.head_size % 2 != 0) return Status::invalid(fmt::format("head_dim {} is odd", config.head_size));
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
  const char* architecture = config.family == "llama"   ? "LlamaForCausalLM"
                             : config.family == "qwen2" ? "Qwen2ForCausalLM"
                                                        : "Qwen3ForCausalLM";
  Json json = {{"architectures", {architecture}},
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
  if (config.family != "qwen2") json["attention_bias"] = config.output_bias;
  if (config.family != "llama") json["use_sliding_window"] = false;
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
  json["torch_dtype"] = torch_name(config.dtype);
  put_special_tokens(config, json);
  return json;
}

Json generation_config_json(const ModelConfig& config) {
  Json json = {{"_from_model_config", true}};
  put_special_tokens(config, json);
  return json;
}

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
    if (config.output_bias) add("self_attn.o_proj.bias", {width});
    add("post_attention_layernorm.weight", {width});
    add("mlp.gate_proj.weight", {config.mlp_width, width});
    add("mlp.up_proj.weight", {config.mlp_width, width});
    add("mlp.down_proj.weight", {width, config.mlp_width});
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

}  // namespace tandem::model
