// `tandem inspect`
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json_line.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/model/inspection.h"
#include "run/run_step.h"

namespace tandem::cli {

namespace {

struct InspectOptions {
  std::string path;
  InspectionSettings settings;
  bool json = false;
};

std::string counts_text(const Json& counts) {
  std::vector<std::string> parts;
  for (const auto& [format, count] : counts.items()) parts.push_back(fmt::format("{} {}", count.dump(), format));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string heads_text(const Json& config) {
  const auto number = [&](const char* key) { return config[key].dump(); };
  const std::string heads = number("num_attention_heads");
  if (config.contains("kv_lora_rank")) {
    return fmt::format("{} heads of {} + {}, latents of {}", heads, number("qk_nope_head_dim"),
                       number("qk_rope_head_dim"), number("kv_lora_rank"));
  }
  if (!config.contains("num_key_value_heads")) return heads + " heads";
  return fmt::format("{} heads ({} of keys and values) of {}", heads, number("num_key_value_heads"),
                     number("head_dim"));
}

void print(const std::string& path, const Json& found) {
  const auto row = [](std::string_view name, const std::string& text) { fmt::print("  {:14} {}\n", name, text); };
  fmt::print("{}\n", path);
  if (found.contains("family")) row("family", found["family"].get<std::string>());
  if (found.contains("parameters")) {
    const double all = found["parameters"].get<double>(), active = found.value("active_parameters", all);
    const auto count = [](double number) {
      return number < 1e6 ? fmt::format("{:.1f} K", number / 1e3) : fmt::format("{:.1f} M", number / 1e6);
    };
    row("parameters", fmt::format("{}, {} active", count(all), active < all ? count(active) : "all"));
  }
  if (found.contains("tensors")) row("tensors", counts_text(found["tensors"]));
  if (found.contains("adapter")) {
    const Json& a = found["adapter"];
    row("adapter", fmt::format("of rank {}, times {}, for {} matrices: {}", a["rank"].dump(), a["scale"].dump(),
                               a["matrices"].dump(), fmt::join(a["targets"].get<std::vector<std::string>>(), ", ")));
  }
  if (found.contains("config")) {
    const Json& c = found["config"];
    row("shape", fmt::format("{} layers of {}, {}, MLP {}", c["num_hidden_layers"].dump(), c["hidden_size"].dump(),
                             heads_text(c), c["intermediate_size"].dump()));
    if (c.contains("num_experts_per_tok")) {
      const char* count = c.contains("num_experts") ? "num_experts" : "n_routed_experts";
      row("experts", fmt::format("{} of {}, {} of each token", c[count].dump(), c["moe_intermediate_size"].dump(),
                                 c["num_experts_per_tok"].dump()));
    }
    row("vocabulary", c["vocab_size"].dump());
    row("context", c["max_position_embeddings"].dump() + " tokens");
  }
  if (found.contains("unused_tensors")) {
    constexpr size_t kShown = 8;
    std::string names;
    const Json& unused = found["unused_tensors"];
    for (size_t i = 0; i < std::min(unused.size(), kShown); ++i)
      names += (i == 0 ? "" : ", ") + unused[i].get<std::string>();
    row("not used",
        names + (unused.size() > kShown ? fmt::format(" and {} more tensors", unused.size() - kShown) : ""));
  }
  if (found.contains("tokenizer")) {
    const Json& t = found["tokenizer"];
    row("tokenizer", t.contains("tokens") ? t["tokens"].dump() + " tokens" : t["model"].get<std::string>());
  }
  if (found.contains("chat_template")) {
    row("template", fmt::format("{} characters, tool calls as {}", found["chat_template"]["characters"].dump(),
                                found["chat_template"]["tool_dialect"].get<std::string>()));
  }
  if (found.contains("reward_head")) {
    const Json& notes = found["reward_head"]["notes"];
    std::string text = "gives conversations a reward";
    for (const auto& [name, value] : notes.items()) text += fmt::format(", {} {}", name, value.get<std::string>());
    row("reward head", text);
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

Result<int> run_inspect(const InspectOptions& options) {
  InspectionSettings settings = options.settings;
  // The model of a step is written only where the numbers are asked for.
  settings.path =
      TRY(settings.numbers ? run::model_directory(options.path) : run::model_to_check(options.path)).string();
  std::error_code error;
  if (!fs::exists(settings.path, error))
    return fail(Status::invalid(fmt::format("there is no file or folder {}", options.path)));
  const Json found = inspect(settings);
  if (options.json)
    fmt::print("{}\n", dump_json_line(found));
  else
    print(options.path, found);
  return found["problems"].empty() ? kDone : kFailed;
}

}  // namespace

Action add_inspect(CLI::App& command) {
  auto options = std::make_shared<InspectOptions>();
  command
      .add_option("MODEL", options->path,
                  "Model directory, directory of an adapter or a sentence encoder, .safetensors or .gguf file, or a "
                  "step of a run: RUN@12, RUN@last, RUN@best")
      ->required();
  command
      .add_option("--context", options->settings.context,
                  "Tokens per sequence for the memory estimate (default: the model's)")
      ->check(CLI::Range(1, 1 << 24));
  command.add_option("--sequences", options->settings.sequences, "Concurrent sequences for the memory estimate")
      ->check(CLI::Range(1, 1 << 20));
  command.add_flag("--numbers", options->settings.numbers,
                   "Read all numbers, and name tensors that contain NaN or infinity");
  command.add_flag("--json", options->json, "Print what was found as JSON");
  command.footer("Example:\n  tandem inspect models/SmolLM2-135M-Instruct --context 1024");
  return [options] { return run_inspect(*options); };
}

}  // namespace tandem::cli
