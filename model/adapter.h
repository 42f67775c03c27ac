// LoRA adapters in PEFT's format, merged into the weights that they were made for.
#pragma once

#include "base/file.h"
#include "model/weights.h"

namespace tandem::model {

// Adds what `directory` (adapter_config.json and adapter_model.safetensors) says to the matrices of bf16 weights:
// W + scale * B A (Hu et al. 2021), scale = lora_alpha / r, or / sqrt(r) with use_rslora; in fp32, sums over r in
// order, rounded once. Gives how many matrices changed. What would change the computation and is not implemented (DoRA,
// biases, modules saved whole, ranks by pattern) is refused by name, as is a tensor that the model does not have or of
// another shape; nothing is changed then. Panels must be packed after it.
Result<int> merge_adapter(const fs::path& directory, Weights& weights);

}  // namespace tandem::model
