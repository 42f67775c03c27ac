// The model that a command computes with: its directory, an adapter for it, the number format.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/model/number_format.h"
#include "kernels/stream.h"
#include "model/weights.h"

namespace tandem::cli {

struct ModelOptions {
  std::string model, adapter;
  bool live = false;
  NumberFormatOptions format;
};

// --model, --adapter, --live, --dtype and --weights.
void add_model_options(CLI::App& command, ModelOptions& options);

// Weights for inference, with the adapter merged or attached, not packed.
Result<model::Weights> load_model(kernels::Stream& stream, const ModelOptions& options);

}  // namespace tandem::cli
