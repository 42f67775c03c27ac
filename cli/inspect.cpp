#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "base/text.h"
#include "cli/command.h"
#include "model/chat_template.h"
#include "model/gguf.h"
#include "model/parameters.h"
#include "model/safetensors.h"
#include "model/tokenizer.h"
#include "model/tool_dialect.h"
#include "model/transformer.h"

namespace tandem::cli {

namespace {

struct Options {
  std::string path;
  int context = 0, sequences = 32;
  bool json = false;
};

// What was found, as one JSON object, with what stands in the way of using it under "problems".
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
  bool usable() const { return problems_.empty(); }

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

void inspect_directory(const Options& options, Inspection& inspection) {
  const fs::path folder = options.path;
  const auto config = model::read_config(folder);
  if (!config) {
    inspection.problem(config.error());
  } else {
    inspection.found["family"] = config->family;
    inspection.found["parameters"] = model::parameter_count(*config);
    inspection.found["active_parameters"] = model::active_parameter_count(*config);
    inspection.found["config"] = model::to_json(*config);
    inspection.found["memory"] =
        memory_of(*config, options.context > 0 ? options.context : config->max_positions, options.sequences);
    if (const auto layout = model::parameter_layout(*config); !layout) inspection.problem(layout.error());
  }
  const auto weights = model::Safetensors::open(folder);
  if (!weights) {
    inspection.problem(weights.error());
  } else {
    describe_tensors(weights->tensors(), format_of, inspection.found);
    if (config) {
      std::vector<std::string> names;
      for (const auto& spec : model::tensor_specs(*config)) names.push_back(spec.name);
      if (const Status status = weights->require(names); !status.ok()) inspection.problem(status);
    }
  }
  inspect_texts(folder, config ? &*config : nullptr, inspection);
}

Status inspect_gguf(const Options& options, Inspection& inspection) {
  const auto file = TRY(model::Gguf::open(options.path));
  inspection.found["format"] = "GGUF";
  describe_tensors(
      file.tensors(), [](const auto& tensor) { return model::name_of(tensor.type); }, inspection.found);
  const auto& metadata = file.metadata();
  const auto text = [&](const char* key) {
    const auto found = metadata.find(key);
    return found != metadata.end() && found->is_string() ? found->template get<std::string>() : std::string();
  };
  inspection.found["family"] = text("general.architecture");
  inspection.found["tokenizer"] = {{"model", text("tokenizer.ggml.model")}};
  if (const auto chat = text("tokenizer.chat_template"); !chat.empty()) {
    inspection.found["chat_template"] = {{"characters", chat.size()},
                                         {"tool_dialect", model::name_of(model::dialect_of_template(chat))}};
  }
  return {};
}

Status inspect_safetensors(const Options& options, Inspection& inspection) {
  const auto file = TRY(model::Safetensors::open(options.path));
  inspection.found["format"] = "safetensors";
  describe_tensors(file.tensors(), format_of, inspection.found);
  return {};
}

std::string counts_text(const Json& counts) {
  std::vector<std::string> parts;
  for (const auto& [format, count] : counts.items()) parts.push_back(fmt::format("{} {}", count.dump(), format));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void print(const std::string& path, const Json& found) {
  const auto row = [](std::string_view name, const std::string& text) { fmt::print("  {:14} {}\n", name, text); };
  fmt::print("{}\n", path);
  if (found.contains("family")) row("family", found["family"].get<std::string>());
  if (found.contains("parameters")) {
    const double all = found["parameters"].get<double>(), active = found.value("active_parameters", all);
    row("parameters",
        fmt::format("{:.1f} M, {} active", all / 1e6, active < all ? fmt::format("{:.1f} M", active / 1e6) : "all"));
  }
  if (found.contains("tensors")) row("tensors", counts_text(found["tensors"]));
  if (found.contains("config")) {
    const Json& c = found["config"];
    const std::string heads =
        c.contains("kv_lora_rank")
            ? fmt::format("{} heads of {} + {}, latents of {}", c["num_attention_heads"].dump(),
                          c["qk_nope_head_dim"].dump(), c["qk_rope_head_dim"].dump(), c["kv_lora_rank"].dump())
            : fmt::format("{} heads ({} of keys and values) of {}", c["num_attention_heads"].dump(),
                          c["num_key_value_heads"].dump(), c["head_dim"].dump());
    row("shape", fmt::format("{} layers of {}, {}, MLP {}", c["num_hidden_layers"].dump(), c["hidden_size"].dump(),
                             heads, c["intermediate_size"].dump()));
    if (c.contains("num_experts_per_tok")) {
      const char* count = c.contains("num_experts") ? "num_experts" : "n_routed_experts";
      row("experts", fmt::format("{} of {}, {} of each token", c[count].dump(), c["moe_intermediate_size"].dump(),
                                 c["num_experts_per_tok"].dump()));
    }
    row("vocabulary", c["vocab_size"].dump());
    row("context", c["max_position_embeddings"].dump() + " tokens");
  }
  if (found.contains("tokenizer")) {
    const Json& t = found["tokenizer"];
    row("tokenizer", t.contains("tokens") ? t["tokens"].dump() + " tokens" : t["model"].get<std::string>());
  }
  if (found.contains("chat_template")) {
    row("template", fmt::format("{} characters, tool calls as {}", found["chat_template"]["characters"].dump(),
                                found["chat_template"]["tool_dialect"].get<std::string>()));
  }
  if (found.contains("memory")) {
    const Json& m = found["memory"];
    const auto bytes = [&](const char* key) { return format_bytes(m[key].get<uint64_t>()); };
    row("to serve",
        fmt::format("{} of weights, and {} of keys and values for {} sequences of {} tokens", bytes("serving_weights"),
                    bytes("keys_and_values"), m["sequences"].dump(), m["context"].dump()));
    row("to train",
        fmt::format("{} of weights, gradients and moments, and what a pass remembers", bytes("training_state")));
  }
  for (const Json& problem : found["problems"]) row("cannot be used", problem.get<std::string>());
}

Result<int> run(const Options& options) {
  Inspection inspection;
  const fs::path path = options.path;
  if (fs::is_directory(path)) {
    inspect_directory(options, inspection);
  } else if (path.extension() == ".gguf") {
    if (const Status status = inspect_gguf(options, inspection); !status.ok()) inspection.problem(status);
  } else {
    if (const Status status = inspect_safetensors(options, inspection); !status.ok()) inspection.problem(status);
  }
  if (options.json)
    fmt::print("{}\n", dump_json(inspection.result()));
  else
    print(options.path, inspection.result());
  return inspection.usable() ? kDone : kFailed;
}

}  // namespace

Action add_inspect(CLI::App& command) {
  auto options = std::make_shared<Options>();
  command.add_option("MODEL", options->path, "Model directory, .safetensors or .gguf file")
      ->required()
      ->check(CLI::ExistingPath);
  command.add_option("--context", options->context, "Tokens a sequence, for the memory (default: the model's)")
      ->check(CLI::Range(1, 1 << 24));
  command.add_option("--sequences", options->sequences, "At once, for the memory")->check(CLI::Range(1, 1 << 20));
  command.add_flag("--json", options->json, "Print what was found as JSON");
  command.footer("Example:\n  tandem inspect models/SmolLM2-135M-Instruct --context 1024");
  return [options] { return run(*options); };
}

}  // namespace tandem::cli
