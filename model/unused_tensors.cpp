#include "model/unused_tensors.h"

#include <set>

#include "model/weights.h"

namespace tandem::model {

std::vector<std::string> unused_tensors(const Safetensors& checkpoint, const ModelConfig& config) {
  std::set<std::string> used;
  for (const TensorSpec& spec : tensor_specs(config)) {
    used.insert(spec.name);
    used.insert(spec.name + "_scale_inv");
  }
  if (config.tied_embeddings) used.insert("lm_head.weight");  // the same as the embeddings, see require_tensors
  std::vector<std::string> unused;
  for (const auto& [name, tensor] : checkpoint.tensors())
    if (!used.contains(name)) unused.push_back(name);
  return unused;
}

}  // namespace tandem::model
