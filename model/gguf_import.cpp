#include "model/gguf_import.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <span>

#include "base/text.h"
#include "model/gguf.h"
#include "model/gguf_tokenizer.h"
#include "model/safetensors.h"
#include "model/tensor_numbers.h"

namespace tandem::model {
namespace {

struct Rename {
  const char* gguf;
  const char* hub;
};

constexpr Rename kOuter[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
};
constexpr Rename kInner[] = {
    {"attn_norm.weight", "input_layernorm.weight"},    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},      {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"}, {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},          {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_output.bias", "self_attn.o_proj.bias"},     {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"}, {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},       {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
};

// "model.layers.3.mlp.up_proj.weight" of "blk.3.ffn_up.weight"; empty for a stranger.
std::string hub_name(std::string_view name) {
  for (const Rename& rename : kOuter) {
    if (name == rename.gguf) return rename.hub;
  }
  const auto parts = split(name, '.');
  if (parts.size() != 4 || parts[0] != "blk") return {};
  for (const Rename& rename : kInner) {
    if (fmt::format("{}.{}", parts[2], parts[3]) == rename.gguf)
      return fmt::format("model.layers.{}.{}", parts[1], rename.hub);
  }
  return {};
}

class Metadata {
 public:
  Metadata(const Json& values, std::string family) : values_(values), family_(std::move(family)) {}

  const Json* find(const std::string& key) const {
    const auto found = values_.find(family_ + "." + key);
    return found == values_.end() ? nullptr : &*found;
  }
  // Into a config.json, which checks the values; absent where the key is.
  void put(Json& json, const char* to, const std::string& key) const {
    if (const Json* value = find(key)) json[to] = *value;
  }

 private:
  const Json& values_;
  std::string family_;
};

constexpr const char* kRopeFactors = "rope_freqs.weight";

// What llama.cpp writes of Llama 3.1's RoPE: by how much each frequency is slowed down. Empty where nothing is.
std::vector<float> frequency_factors(const Gguf& gguf) {
  const auto found = gguf.tensors().find(kRopeFactors);
  if (found == gguf.tensors().end()) return {};
  std::vector<float> factors(static_cast<size_t>(found->second.elements()));
  dequantise(found->second, factors);
  return std::ranges::all_of(factors, [](float factor) { return factor == 1; }) ? std::vector<float>() : factors;
}

// The settings of config.json that the factors were made from: those that Meta's models have, with the factor that the
// slowest frequencies tell. Every factor must follow from them.
Result<Json> llama3_scaling(std::span<const float> factors, const ModelConfig& config, const Metadata& metadata) {
  RopeConfig rope{.kind = RopeKind::kLlama3,
                  .theta = config.rope.theta,
                  .factor = std::ranges::max(factors),
                  .original_max_positions = 8192};
  const Json* const original = metadata.find("rope.scaling.original_context_length");
  if (original != nullptr && original->is_number_unsigned() && original->get<uint64_t>() <= INT32_MAX)
    rope.original_max_positions = original->get<int>();
  const auto plain = rope_frequencies({.theta = rope.theta}, rope_dim(config)),
             slowed = rope_frequencies(rope, rope_dim(config));
  bool follows = factors.size() == plain.size();
  for (size_t i = 0; i < factors.size() && follows; ++i) {
    constexpr float kRounding = 1e-5f;
    follows = std::fabs(plain[i] / slowed[i] - factors[i]) <= kRounding * factors[i];
  }
  if (!follows)
    return fail(Status::invalid(fmt::format("tensor {} slows frequencies down as no rope_type llama3 with "
                                            "low_freq_factor 1 and high_freq_factor 4 does from {} positions on",
                                            kRopeFactors, rope.original_max_positions))
                    .hint("use the checkpoint that the file was made from"));
  return Json{{"rope_type", "llama3"},
              {"factor", rope.factor},
              {"low_freq_factor", rope.low_frequency_factor},
              {"high_freq_factor", rope.high_frequency_factor},
              {"original_max_position_embeddings", rope.original_max_positions}};
}

}  // namespace

Result<ModelConfig> config_of_gguf(const Gguf& gguf) {
  const Json& values = gguf.metadata();
  const auto found = values.find("general.architecture");
  if (found == values.end() || !found->is_string()) return fail(Status::invalid("metadata lacks general.architecture"));
  const Metadata metadata(values, found->get<std::string>());
  Json json = {{"model_type", *found}, {"torch_dtype", "bfloat16"}};
  metadata.put(json, "num_hidden_layers", "block_count");
  metadata.put(json, "hidden_size", "embedding_length");
  metadata.put(json, "intermediate_size", "feed_forward_length");
  metadata.put(json, "num_attention_heads", "attention.head_count");
  metadata.put(json, "num_key_value_heads", "attention.head_count_kv");
  metadata.put(json, "head_dim", "attention.key_length");
  metadata.put(json, "max_position_embeddings", "context_length");
  metadata.put(json, "rms_norm_eps", "attention.layer_norm_rms_epsilon");
  metadata.put(json, "rope_theta", "rope.freq_base");
  for (const char* experts : {"expert_count", "attention.sliding_window"}) {
    if (const Json* value = metadata.find(experts); value != nullptr && *value != 0) {
      return fail(Status::invalid(fmt::format("{} {} is not supported", experts, dump_json(*value))));
    }
  }
  if (const Json* type = metadata.find("rope.scaling.type"); type != nullptr && *type != "none") {
    // yarn in GGUF leaves out what transformers need; linear says it all.
    const Json* factor = metadata.find("rope.scaling.factor");
    if (*type != "linear" || factor == nullptr) {
      return fail(Status::invalid(fmt::format("rope.scaling.type {} is not supported", dump_json(*type))));
    }
    json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", *factor}};
  }
  const auto embedding = gguf.tensors().find("token_embd.weight");
  if (embedding == gguf.tensors().end() || embedding->second.shape.size() != 2) {
    return fail(Status::invalid("has no tensor token_embd.weight of two dimensions"));
  }
  json["vocab_size"] = embedding->second.shape[0];
  json["tie_word_embeddings"] = !gguf.tensors().contains("output.weight");
  json["attention_bias"] = gguf.tensors().contains("blk.0.attn_output.bias");
  for (const auto& [to, key] : {std::pair("bos_token_id", "tokenizer.ggml.bos_token_id"),
                                std::pair("eos_token_id", "tokenizer.ggml.eos_token_id"),
                                std::pair("pad_token_id", "tokenizer.ggml.padding_token_id")}) {
    if (values.contains(key)) json[to] = values[key];
  }
  // Where a turn or a call ends, which a chat ends with as well.
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    const auto token = values.find(key);
    if (token == values.end()) continue;
    Json& ends = json["eos_token_id"];
    if (!ends.is_array()) ends = ends.is_null() ? Json::array() : Json::array({ends});
    if (std::find(ends.begin(), ends.end(), *token) == ends.end()) ends.push_back(*token);
  }
  ModelConfig config = TRY(config_from_json(json));
  if (const auto factors = frequency_factors(gguf); !factors.empty()) {
    json["rope_scaling"] = TRY(llama3_scaling(factors, config, metadata));
    config = TRY(config_from_json(json));
  }
  if (const Json* rotated = metadata.find("rope.dimension_count"); rotated != nullptr && *rotated != config.head_size) {
    return fail(Status::invalid(
        fmt::format("rope.dimension_count {} is not the head size {}", dump_json(*rotated), config.head_size)));
  }
  return config;
}

namespace {

// llama.cpp stores the query and key rows of the llama architecture with the two halves of each head interleaved,
// because it rotates neighbours; the hub's layout rotates row i with row i + size/2. Row h*size + half*size/2 + i of
// the hub is row h*size + 2*i + half of the file.
int64_t source_row(int64_t row, int64_t head_size) {
  const int64_t in_head = row % head_size;
  const int64_t half = in_head / (head_size / 2);
  return row - in_head + 2 * (in_head % (head_size / 2)) + half;
}

std::vector<uint16_t> to_bf16(const GgufTensor& tensor, std::optional<int64_t> interleaved_head_size) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  dequantise(tensor, values);
  std::vector<uint16_t> result(values.size());
  const int64_t rows = tensor.shape.empty() ? 1 : tensor.shape[0];
  const size_t row_size = rows == 0 ? 0 : values.size() / static_cast<size_t>(rows);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t from = interleaved_head_size ? source_row(row, *interleaved_head_size) : row;
    for (size_t i = 0; i < row_size; ++i) {
      result[static_cast<size_t>(row) * row_size + i] = float_to_bf16(values[static_cast<size_t>(from) * row_size + i]);
    }
  }
  return result;
}

std::string count_formats(const Gguf& gguf) {
  std::map<std::string_view, int> counts;
  for (const auto& [name, tensor] : gguf.tensors()) ++counts[name_of(tensor.type)];
  std::vector<std::pair<int, std::string_view>> sorted;
  for (const auto& [format, count] : counts) sorted.emplace_back(-count, format);
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::string> words;
  for (const auto& [count, format] : sorted) words.push_back(fmt::format("{} {}", -count, format));
  return join(words, ", ");
}

}  // namespace

Result<std::map<std::string, const GgufTensor*>> tensors_of_gguf(const Gguf& gguf, const ModelConfig& config) {
  std::map<std::string, const GgufTensor*> sources;
  for (const auto& [name, tensor] : gguf.tensors()) {
    const std::string to = hub_name(name);
    if (name == kRopeFactors) continue;  // the config says them
    if (to.empty()) return fail(Status::invalid(fmt::format("tensor {} is of no known use", name)));
    sources[to] = &tensor;
  }
  const std::vector<TensorSpec> specs = tensor_specs(config);
  std::vector<std::string> missing;
  for (const TensorSpec& spec : specs) {
    const auto source = sources.find(spec.name);
    if (source == sources.end()) {
      missing.push_back(spec.name);
    } else if (source->second->shape != spec.shape) {
      return fail(Status::invalid(fmt::format("{} has shape [{}], the model needs [{}]", spec.name,
                                              fmt::join(source->second->shape, ", "), fmt::join(spec.shape, ", "))));
    }
  }
  if (!missing.empty())
    return fail(Status::not_found(fmt::format("{} tensors are missing: {}", missing.size(), join(missing, ", "))));
  if (sources.size() != specs.size())
    return fail(Status::invalid(fmt::format("{} tensors where the model has {}", sources.size(), specs.size())));
  return sources;
}

Result<ImportSummary> import_gguf(const fs::path& file, const fs::path& directory) {
  const Gguf gguf = TRY(Gguf::open(file));
  const auto here = [&](Status status) { return std::move(status).at(file.string()); };
  auto config = config_of_gguf(gguf);
  if (!config) return fail(here(std::move(config).error()));
  auto tokenizer = tokenizer_files(gguf, config->max_positions);
  if (!tokenizer) return fail(here(std::move(tokenizer).error()));
  auto sources = tensors_of_gguf(gguf, *config);
  if (!sources) return fail(here(std::move(sources).error()));
  const std::vector<TensorSpec> specs = tensor_specs(*config);

  TRY(make_directories(directory));
  const std::pair<const char*, std::string> texts[] = {
      {"config.json", to_json(*config).dump(2)},
      {"generation_config.json", generation_config_json(*config).dump(2)},
      {"tokenizer.json", tokenizer->tokenizer.dump(1, ' ', false, Json::error_handler_t::replace)},
      {"tokenizer_config.json", tokenizer->tokenizer_config.dump(2, ' ', false, Json::error_handler_t::replace)},
      {"special_tokens_map.json", tokenizer->special_tokens_map.dump(2, ' ', false, Json::error_handler_t::replace)}};
  for (const auto& [name, text] : texts) TRY(write_file(directory / name, text + "\n"));

  ImportSummary summary{.config = *config, .source_formats = count_formats(gguf)};
  for (const auto& [key, value] : gguf.metadata().items())
    if (key.starts_with("general.sampling.")) summary.left_out.push_back(key);
  std::deque<std::vector<uint16_t>> buffers;
  std::vector<NamedTensor> tensors;
  for (const TensorSpec& spec : specs) {
    const bool interleaved = config->family == "llama" && (spec.name.find(".q_proj.") != std::string::npos ||
                                                           spec.name.find(".k_proj.") != std::string::npos);
    const auto& values = buffers.emplace_back(
        to_bf16(*sources->at(spec.name), interleaved ? std::optional<int64_t>(config->head_size) : std::nullopt));
    tensors.push_back({spec.name, {DType::kBF16, spec.shape, std::as_bytes(std::span(values))}});
    if (const size_t count = count_not_finite(tensors.back().tensor); count > 0)
      spdlog::warn("{}: of the {} numbers of {}, {} are NaN or infinite", file.string(), values.size(), spec.name,
                   count);
    summary.bytes += values.size() * sizeof(uint16_t);
    ++summary.tensors;
  }
  TRY(write_checkpoint(directory, tensors));
  return summary;
}

}  // namespace tandem::model
