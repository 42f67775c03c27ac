// Tensors of a checkpoint that its model does not use.
#pragma once

#include <string>
#include <vector>

#include "model/config.h"
#include "model/safetensors.h"

namespace tandem::model {

// By name, in order. A head beside embeddings that are tied to it is no such tensor.
std::vector<std::string> unused_tensors(const Safetensors& checkpoint, const ModelConfig& config);

}  // namespace tandem::model
