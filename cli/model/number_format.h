// The number format that a command computes a model in: what its config.json says, unless the user says otherwise.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/file.h"
#include "model/weight_format.h"

namespace tandem::cli {

struct NumberFormatOptions {
  std::string dtype;    // empty: of config.json; float16 is computed in bfloat16
  std::string weights;  // empty: as the activations
};

// --dtype and --weights.
void add_number_format_options(CLI::App& command, NumberFormatOptions& options);

// Reads the config of the model's directory where the options leave it open. kInvalid names options that contradict
// each other.
Result<model::WeightFormat> number_format(const NumberFormatOptions& options, const fs::path& model);

}  // namespace tandem::cli
