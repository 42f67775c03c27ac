#include "cli/model/model_options.h"

#include <spdlog/spdlog.h>

#include "model/live_adapter.h"

namespace tandem::cli {

void add_model_options(CLI::App& command, ModelOptions& options) {
  command.add_option("--model", options.model, "Model directory (Hugging Face layout)")->required();
  command.add_option("--adapter", options.adapter, "Directory of a LoRA adapter in PEFT's format, merged in memory");
  command.add_flag("--live", options.live, "Do not merge the adapter: compute its products separately")
      ->needs("--adapter");
  add_number_format_options(command, options.format);
  add_device_option(command, options.device);
}

void add_device_option(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "Device: auto, cpu, cpu:avx2 and the like, cuda:0, cuda:0:tensor, emulated:0")
      ->capture_default_str();
}

Result<model::Place> place_of(const std::string& device, int threads) {
  const model::Place place{.device = TRY(kernels::find_device(device)), .threads = threads};
  if (device == "auto") spdlog::info("device auto: {}", kernels::to_string(place.device));
  return place;
}

Result<model::Weights> load_model(kernels::Stream& stream, const ModelOptions& options) {
  const auto format = TRY(number_format(options.format, options.model));
  auto weights = TRY(model::load_weights(options.model, false, format));
  if (options.live)
    weights.attach(TRY(model::LiveAdapter::read(stream, options.adapter, weights)));
  else if (!options.adapter.empty())
    TRY(model::merge_adapter(stream, options.adapter, weights));
  return weights;
}

}  // namespace tandem::cli
