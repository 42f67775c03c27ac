#include "cli/model_options.h"

#include "model/adapter.h"

namespace tandem::cli {

void add_model_options(CLI::App& command, ModelOptions& options) {
  command.add_option("--model", options.model, "Model directory (Hugging Face layout)")->required();
  command.add_option("--adapter", options.adapter, "Directory of a LoRA adapter in PEFT's format, merged in memory");
  add_number_format_options(command, options.format);
}

Result<model::Weights> load_model(kernels::Stream& stream, const ModelOptions& options) {
  const auto format = TRY(number_format(options.format, options.model));
  auto weights = TRY(model::load_weights(options.model, false, format));
  if (!options.adapter.empty()) TRY(model::merge_adapter(stream, options.adapter, weights));
  return weights;
}

}  // namespace tandem::cli
