#include "model/encoder_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "model/config_reader.h"

namespace tandem::model {
namespace {

// The object in a file; nothing where there is no such file.
Result<std::optional<Json>> find_object(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::optional<Json>();
  auto json = parse_json(TRY(read_file(path, 16 << 20)));
  if (!json) return fail(std::move(json).error().at(path.string()));
  return std::optional(std::move(*json));
}

Status check_pooling(const Json& pooling) {
  if (!pooling.is_object()) return Status::invalid("is not an object");
  const std::string mode = TRY(ConfigReader(pooling).text("pooling_mode", "mean"));
  if (mode != "mean") return Status::invalid(fmt::format("pooling_mode \"{}\" is not mean", mode));
  for (const auto& [key, value] : pooling.items()) {
    const bool mean = key == "pooling_mode_mean_tokens";
    if (key.starts_with("pooling_mode_") && value != mean) {
      return Status::invalid(fmt::format("{} is {}: only the mean of all tokens is computed", key, value.dump()));
    }
  }
  return {};
}

// A text goes through the transformer, the mean of its tokens is taken and given the length 1.
Status check_modules(const fs::path& directory) {
  const fs::path path = directory / "modules.json";
  const auto modules = TRY(find_object(path));
  if (!modules) return {};
  if (!modules->is_array()) return Status::invalid("is not a list").at(path.string());
  for (const Json& module : *modules) {
    const auto type = module.is_object() ? ConfigReader(module).text("type", "") : Result<std::string>("");
    const std::string name = type ? type->substr(type->rfind('.') + 1) : "";
    if (name != "Transformer" && name != "Pooling" && name != "Normalize") {
      return Status::invalid(fmt::format("the module {} is not one of Transformer, Pooling, Normalize", module.dump()))
          .at(path.string());
    }
    if (name != "Pooling") continue;
    const auto folder = ConfigReader(module).text("path", "");
    if (!folder || folder->empty() || folder->find('/') != std::string::npos || folder->starts_with(".")) {
      return Status::invalid("the path of Pooling is not the name of a folder").at(path.string());
    }
    const fs::path pooling_path = directory / *folder / "config.json";
    const auto pooling = TRY(find_object(pooling_path));
    if (!pooling) return Status::not_found("is not there").at(pooling_path.string());
    Status status = check_pooling(*pooling);
    if (!status.ok()) return std::move(status).at(pooling_path.string());
  }
  return {};
}

Result<int> longest_text(const fs::path& directory, int positions) {
  const fs::path path = directory / "sentence_bert_config.json";
  if (const auto sentences = TRY(find_object(path))) {
    const ConfigReader reader(*sentences);
    const auto lowers = reader.flag("do_lower_case", false);
    const auto longest = reader.size("max_seq_length", positions);
    if (!lowers) return fail(Status(lowers.error()).at(path.string()));
    if (*lowers) return fail(Status::invalid("do_lower_case is true: only the tokenizer lowers").at(path.string()));
    if (!longest) return fail(Status(longest.error()).at(path.string()));
    if (has(*sentences, "max_seq_length")) return std::min(*longest, positions);
  }
  const auto tokenizer = TRY(find_object(directory / "tokenizer_config.json"));
  // Tokenizers without a limit say so by 10^30.
  if (tokenizer && has(*tokenizer, "model_max_length") && (*tokenizer)["model_max_length"].is_number()) {
    const double longest = (*tokenizer)["model_max_length"].get<double>();
    if (longest >= 1 && longest < positions) return static_cast<int>(longest);
  }
  return positions;
}

}  // namespace

Result<EncoderConfig> encoder_config_from_json(const Json& json) {
  if (!json.is_object()) return fail(Status::invalid("is not an object"));
  const ConfigReader reader(json);
  const auto expect = [&](const char* key, const char* expected) -> Status {
    const std::string found = TRY(reader.text(key, expected));
    if (found == expected) return {};
    return Status::invalid(fmt::format("{} \"{}\" is not {}", key, found, expected));
  };
  if (!has(json, "model_type")) return fail(Status::invalid("lacks model_type"));
  TRY(expect("model_type", "bert"));
  TRY(expect("hidden_act", "gelu"));
  TRY(expect("position_embedding_type", "absolute"));
  for (const char* unsupported : {"is_decoder", "add_cross_attention", "quantization_config"}) {
    if (has(json, unsupported) && json[unsupported] != false) {
      return fail(
          Status::invalid(fmt::format("{} is {}, which encoders are not", unsupported, json[unsupported].dump())));
    }
  }
  EncoderConfig config;
  config.layers = TRY(reader.size("num_hidden_layers"));
  config.width = TRY(reader.size("hidden_size"));
  config.heads = TRY(reader.size("num_attention_heads"));
  config.mlp_width = TRY(reader.size("intermediate_size"));
  config.vocabulary = TRY(reader.size("vocab_size"));
  config.positions = config.longest = TRY(reader.size("max_position_embeddings"));
  config.types = TRY(reader.size("type_vocab_size", 2));
  config.norm_epsilon = static_cast<float>(TRY(reader.number("layer_norm_eps", 1e-12)));
  if (config.width % config.heads != 0 || config.head_size() > 256) {
    return fail(Status::invalid(fmt::format("hidden_size {} in num_attention_heads {} gives no heads of 1 to 256",
                                            config.width, config.heads)));
  }
  return config;
}

Result<EncoderConfig> read_encoder_config(const fs::path& directory) {
  const fs::path path = directory / "config.json";
  const auto json = parse_json(TRY(read_file(path, 16 << 20)));
  if (!json) return fail(Status(json.error()).at(path.string()));
  auto config = encoder_config_from_json(*json);
  if (!config) return fail(std::move(config).error().at(path.string()));
  TRY(check_modules(directory));
  config->longest = TRY(longest_text(directory, config->positions));
  return config;
}

std::vector<TensorSpec> tensor_specs(const EncoderConfig& config) {
  const int64_t width = config.width, mlp = config.mlp_width;
  std::vector<TensorSpec> specs = {{"embeddings.word_embeddings.weight", {config.vocabulary, width}},
                                   {"embeddings.position_embeddings.weight", {config.positions, width}},
                                   {"embeddings.token_type_embeddings.weight", {config.types, width}}};
  const auto add_affine = [&](const std::string& name, std::vector<int64_t> shape) {
    specs.push_back({name + ".weight", shape});
    specs.push_back({name + ".bias", {shape[0]}});
  };
  add_affine("embeddings.LayerNorm", {width});
  for (int layer = 0; layer < config.layers; ++layer) {
    const auto of = [&](const char* part) { return fmt::format("encoder.layer.{}.{}", layer, part); };
    for (const char* part :
         {"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"}) {
      add_affine(of(part), {width, width});
    }
    add_affine(of("attention.output.LayerNorm"), {width});
    add_affine(of("intermediate.dense"), {mlp, width});
    add_affine(of("output.dense"), {width, mlp});
    add_affine(of("output.LayerNorm"), {width});
  }
  return specs;
}

}  // namespace tandem::model
