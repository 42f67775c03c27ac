// The model that a command computes with: its directory, an adapter for it, the number format.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/model/number_format.h"
#include "kernels/stream.h"
#include "model/executor.h"
#include "model/weights.h"

namespace tandem::cli {

struct ModelOptions {
  std::string model, adapter;
  bool live = false;
  NumberFormatOptions format;
  std::string device = "cpu";
};

// --device, of any command that runs a model.
void add_device_option(CLI::App& command, std::string& device);

// Where a command computes; logs what `auto` stands for here.
Result<model::Place> place_of(const std::string& device, int threads);

// --model, --adapter, --live, --dtype, --weights and --device.
void add_model_options(CLI::App& command, ModelOptions& options);

// Weights for inference, with the adapter merged or attached, not packed.
Result<model::Weights> load_model(kernels::Stream& stream, const ModelOptions& options);

}  // namespace tandem::cli
