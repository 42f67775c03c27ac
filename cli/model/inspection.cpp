// What a directory or a file holds, found out without loading it where that is not needed.
#include "cli/model/inspection.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "kernels/attention.h"
#include "model/adapter.h"
#include "model/chat_template.h"
#include "model/gguf.h"
#include "model/gguf_import.h"
#include "model/gguf_tokenizer.h"
#include "model/parameters.h"
#include "model/reward_head.h"
#include "model/safetensors.h"
#include "model/tensor_numbers.h"
#include "model/text_encoder.h"
#include "model/tool_dialect.h"
#include "model/transformer.h"
#include "model/unused_tensors.h"

namespace tandem::cli {

namespace {

class Inspection {
 public:
  void problem(const std::string& what) { problems_.push_back(what); }
  void problem(const Status& status) { problem(status.to_string()); }

  Json found = Json::object();

  Json result() const {
    Json all = found;
    all["problems"] = problems_;
    return all;
  }

 private:
  std::vector<std::string> problems_;
};

// How many tensors there are of each format, and how many numbers they hold.
template <typename Tensors, typename NameOf>
void describe_tensors(const Tensors& tensors, NameOf name_of, Json& found) {
  std::map<std::string, int> counts;
  int64_t parameters = 0;
  for (const auto& [name, tensor] : tensors) {
    ++counts[std::string(name_of(tensor))];
    parameters += tensor.elements();
  }
  found["tensors"] = counts;
  if (!found.contains("parameters")) found["parameters"] = parameters;
}

std::string_view format_of(const model::TensorView& tensor) { return model::safetensors_name(tensor.dtype); }

// Bytes of what is kept for every parameter: by an engine, the panels of its products and the embedding that is looked
// up; by the trainer, masters, two moments and gradients in fp32, and in bf16 the weights, their panels both ways, and
// those of the version before.
Json memory_of(const model::ModelConfig& config, int context, int sequences) {
  const auto parameters = static_cast<uint64_t>(model::parameter_count(config));
  const uint64_t embedding = static_cast<uint64_t>(config.vocabulary) * config.width;
  const uint64_t token = kernels::page_elements(model::attention_shape(config)) / kernels::kPageTokens * config.layers *
                         sizeof(kernels::bf16);
  return {{"serving_weights", 2 * (parameters + (config.tied_embeddings ? embedding : 0))},
          {"keys_and_values_per_token", token},
          {"context", context},
          {"sequences", sequences},
          {"keys_and_values", token * static_cast<uint64_t>(context) * sequences},
          {"training_state", parameters * (4 * 4 + 2 * 5)}};
}

void inspect_texts(const fs::path& folder, const model::ModelConfig* config, Inspection& inspection) {
  const auto tokenizer = model::Tokenizer::load(folder);
  if (!tokenizer) {
    inspection.problem(tokenizer.error());
  } else {
    inspection.found["tokenizer"] = {{"tokens", tokenizer->size()}};
    if (config != nullptr && tokenizer->size() > config->vocabulary) {
      inspection.problem(
          fmt::format("the tokenizer has {} tokens, the model {}", tokenizer->size(), config->vocabulary));
    }
  }
  const auto chat = model::ChatTemplate::load(folder);
  if (!chat) {
    inspection.problem(chat.error());
  } else {
    inspection.found["chat_template"] = {
        {"characters", chat->source(true).size()},
        {"tool_dialect", model::name_of(model::dialect_of_template(chat->source(true)))}};
  }
}

void inspect_numbers(const model::Safetensors& weights, Inspection& inspection) {
  for (const auto& [name, tensor] : weights.tensors()) {
    if (const size_t count = model::count_not_finite(tensor); count > 0) {
      inspection.problem(
          fmt::format("of the {} numbers of {}, {} are NaN or infinite", tensor.elements(), name, count));
    }
  }
}

void describe_config(const InspectionSettings& settings, const model::ModelConfig& config, Inspection& inspection) {
  inspection.found["family"] = config.family;
  inspection.found["parameters"] = model::parameter_count(config);
  inspection.found["active_parameters"] = model::active_parameter_count(config);
  inspection.found["config"] = model::to_json(config);
  inspection.found["memory"] =
      memory_of(config, settings.context > 0 ? settings.context : config.max_positions, settings.sequences);
  if (const auto layout = model::parameter_layout(config); !layout) inspection.problem(layout.error());
}

// A model of texts, or one whose family is not known.
void inspect_model(const InspectionSettings& settings, Inspection& inspection) {
  const fs::path& folder = settings.path;
  const auto config = model::read_config(folder);
  if (!config) {
    inspection.problem(config.error());
  } else {
    describe_config(settings, *config, inspection);
  }
  const auto weights = model::Safetensors::open(folder);
  if (!weights) {
    inspection.problem(weights.error());
  } else {
    describe_tensors(weights->tensors(), format_of, inspection.found);
    if (settings.numbers) inspect_numbers(*weights, inspection);
    if (config) {
      if (const Status status = model::require_tensors(*weights, *config, folder); !status.ok())
        inspection.problem(status);
      else if (const auto unused = model::unused_tensors(*weights, *config); !unused.empty())
        inspection.found["unused_tensors"] = unused;
    }
  }
  inspect_texts(folder, config ? &*config : nullptr, inspection);
  if (!config) return;
  const auto head = model::read_reward_head(folder, config->width);
  if (!head)
    inspection.problem(head.error());
  else if (*head)
    inspection.found["reward_head"] = {
        {"width", config->width}, {"bias", (*head)->weight.back()}, {"notes", (*head)->notes}};
}

// `tandem embed` reads the same files; what it would refuse is the problem.
Status inspect_encoder(const InspectionSettings& settings, Inspection& inspection) {
  const auto weights = TRY(model::Safetensors::open(settings.path));
  describe_tensors(weights.tensors(), format_of, inspection.found);
  if (settings.numbers) inspect_numbers(weights, inspection);
  const auto config = TRY(model::read_encoder_config(settings.path));
  inspection.found["config"] = {{"num_hidden_layers", config.layers},  {"hidden_size", config.width},
                                {"num_attention_heads", config.heads}, {"intermediate_size", config.mlp_width},
                                {"vocab_size", config.vocabulary},     {"max_position_embeddings", config.longest}};
  const auto tokenizer = TRY(model::Tokenizer::load(settings.path));
  inspection.found["tokenizer"] = {{"tokens", tokenizer.size()}};
  auto stream = TRY(kernels::Stream::cpu(1));
  TRY(model::TextEncoder::load(settings.path, stream));
  return {};
}

Status inspect_adapter(const InspectionSettings& settings, Inspection& inspection) {
  const auto adapter = TRY(model::read_adapter(settings.path));
  const auto weights = TRY(model::Safetensors::open(settings.path / model::kAdapterFactorsFile));
  describe_tensors(weights.tensors(), format_of, inspection.found);
  if (settings.numbers) inspect_numbers(weights, inspection);
  std::set<std::string> targets;
  for (const auto& [name, factors] : adapter.factors) targets.insert(model::module_of(name));
  inspection.found["adapter"] = {{"rank", adapter.rank},
                                 {"alpha", adapter.alpha},
                                 {"scale", adapter.scale()},
                                 {"matrices", adapter.factors.size()},
                                 {"targets", targets}};
  return {};
}

Status inspect_gguf(const InspectionSettings& settings, Inspection& inspection) {
  const auto file = TRY(model::Gguf::open(settings.path));
  const auto problem = [&](Status status) { inspection.problem(std::move(status).at(settings.path.string())); };
  inspection.found["format"] = "GGUF";
  describe_tensors(
      file.tensors(), [](const auto& tensor) { return model::name_of(tensor.type); }, inspection.found);
  const auto& metadata = file.metadata();
  const auto text = [&](const char* key) {
    const auto found = metadata.find(key);
    return found != metadata.end() && found->is_string() ? found->template get<std::string>() : std::string();
  };
  inspection.found["family"] = text("general.architecture");
  if (const auto kind = text("tokenizer.ggml.model"); !kind.empty()) inspection.found["tokenizer"] = {{"model", kind}};
  if (const auto chat = text("tokenizer.chat_template"); !chat.empty()) {
    inspection.found["chat_template"] = {{"characters", chat.size()},
                                         {"tool_dialect", model::name_of(model::dialect_of_template(chat))}};
  }
  const auto config = model::config_of_gguf(file);
  if (!config) return problem(config.error()), Status();
  describe_config(settings, *config, inspection);
  if (const auto tensors = model::tensors_of_gguf(file, *config); !tensors) problem(tensors.error());
  if (const auto tokenizer = model::tokenizer_files(file, config->max_positions); !tokenizer)
    problem(tokenizer.error());
  else if (const auto read = model::Tokenizer::from_json(dump_json(tokenizer->tokenizer)); !read)
    problem(read.error());
  else
    inspection.found["tokenizer"]["tokens"] = read->size();
  return {};
}

Status inspect_safetensors(const InspectionSettings& settings, Inspection& inspection) {
  const auto file = TRY(model::Safetensors::open(settings.path));
  inspection.found["format"] = "safetensors";
  describe_tensors(file.tensors(), format_of, inspection.found);
  if (settings.numbers) inspect_numbers(file, inspection);
  return {};
}

bool is_encoder(const fs::path& directory) {
  const auto text = read_file(directory / "config.json", 16 << 20);
  if (!text) return false;
  const auto config = parse_json(*text);
  return config && config->is_object() && config->value("model_type", Json()) == "bert";
}

}  // namespace

Json inspect(const InspectionSettings& settings) {
  Inspection inspection;
  const auto note = [&](const Status& status) {
    if (!status.ok()) inspection.problem(status);
  };
  if (!fs::is_directory(settings.path)) {
    const bool gguf = settings.path.extension() == ".gguf";
    note(gguf ? inspect_gguf(settings, inspection) : inspect_safetensors(settings, inspection));
  } else if (is_encoder(settings.path)) {
    inspection.found["family"] = "bert";
    note(inspect_encoder(settings, inspection));
  } else if (fs::exists(settings.path / model::kAdapterConfigFile) && !fs::exists(settings.path / "config.json")) {
    inspection.found["format"] = "LoRA";
    note(inspect_adapter(settings, inspection));
  } else {
    inspect_model(settings, inspection);
  }
  return inspection.result();
}

}  // namespace tandem::cli
