// Inspects a model directory, an adapter or a file of weights, and finds everything that prevents its use.
#pragma once

#include "base/file.h"
#include "base/json.h"

namespace tandem::cli {

struct InspectionSettings {
  fs::path path;
  // For the memory estimate of serving: tokens of a sequence (0: the model's limit), and concurrent sequences.
  int context = 0, sequences = 32;
  bool numbers = false;  // read all numbers, and name the tensors with some that are NaN or infinite
};

// One object; "problems" are texts, none where all is well. docs/models.md shows it.
Json inspect(const InspectionSettings& settings);

}  // namespace tandem::cli
