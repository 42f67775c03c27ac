// `tandem import`.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/json.h"
#include "base/json_line.h"
#include "base/text.h"
#include "cli/command.h"
#include "model/adapter.h"
#include "model/gguf_import.h"

namespace tandem::cli {

namespace {

struct ImportOptions {
  std::string gguf;
  std::string model;
  std::string adapter;
  std::string out;
  bool json = false;
};

Result<int> import_file(const ImportOptions& options) {
  const model::ImportSummary summary = TRY(model::import_gguf(options.gguf, options.out));
  if (options.json) {
    const Json result = {{"out", options.out},
                         {"family", summary.config.family},
                         {"parameters", model::parameter_count(summary.config)},
                         {"tensors", summary.tensors},
                         {"bytes", summary.bytes},
                         {"source_formats", summary.source_formats},
                         {"left_out", summary.left_out}};
    fmt::print("{}\n", dump_json_line(result));
    return kDone;
  }
  fmt::print("{}: {} with {} parameters, {} tensors ({}) as bf16, {}\n", options.out, summary.config.family,
             model::parameter_count(summary.config), summary.tensors, summary.source_formats,
             format_bytes(summary.bytes));
  if (!summary.left_out.empty())
    fmt::print("left out: {}; requests say how to sample\n", fmt::join(summary.left_out, ", "));
  return kDone;
}

Result<int> merge(const ImportOptions& options) {
  auto weights = TRY(model::load_weights(options.model, false));
  auto stream = TRY(kernels::Stream::cpu(static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))));
  const int matrices = TRY(model::merge_adapter(stream, options.adapter, weights));
  TRY(model::save_weights(weights, options.out, options.model));
  const std::string& family = weights.config().family;
  const int64_t parameters = model::parameter_count(weights.config());
  if (options.json) {
    const Json result = {
        {"out", options.out}, {"family", family}, {"parameters", parameters}, {"merged_matrices", matrices}};
    fmt::print("{}\n", dump_json_line(result));
    return kDone;
  }
  fmt::print("{}: {} with {} parameters as bf16, {} matrices changed by the adapter\n", options.out, family, parameters,
             matrices);
  return kDone;
}

Result<int> run_import(const ImportOptions& options) {
  if (options.gguf.empty() == options.model.empty()) {
    return fail(Status::invalid("give either --gguf, or --model and --adapter"));
  }
  return options.gguf.empty() ? merge(options) : import_file(options);
}

}  // namespace

Action add_import(CLI::App& command) {
  auto options = std::make_shared<ImportOptions>();
  command.add_option("--gguf", options->gguf,
                     "GGUF file to read (F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K)");
  auto* model = command.add_option("--model", options->model, "model directory to merge an adapter into");
  auto* adapter = command.add_option("--adapter", options->adapter, "directory of a LoRA adapter in PEFT's format");
  model->needs(adapter);
  adapter->needs(model);
  command.add_option("OUT", options->out, "folder to write: config, weights in bf16, tokenizer, chat template")
      ->required();
  command.add_flag("--json", options->json, "print what was written as JSON");
  command.footer(
      "Examples:\n  tandem import --gguf smollm2.gguf models/smollm2\n"
      "  tandem import --model models/SmolLM2-135M-Instruct --adapter adapters/mine models/mine");
  return [options] { return run_import(*options); };
}

}  // namespace tandem::cli
