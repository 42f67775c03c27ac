// A GGUF file as a Hugging Face directory.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "model/config.h"
#include "model/gguf.h"

namespace tandem::model {

struct ImportSummary {
  ModelConfig config;
  int tensors = 0;
  uint64_t bytes = 0;                 // of the weights that were written
  std::string source_formats;         // "210 Q4_1, 61 F32, 1 Q8_0"
  std::vector<std::string> left_out;  // keys of the metadata that say how to sample, which no file here takes
};

// Reads the config from the metadata, where the architecture can be imported.
Result<ModelConfig> config_of_gguf(const Gguf& gguf);
// The tensors of such a model by their names of the hub; those that are missing, too many or of another shape are
// named.
Result<std::map<std::string, const GgufTensor*>> tensors_of_gguf(const Gguf& gguf, const ModelConfig& config);

// Writes config.json, generation_config.json, model.safetensors (bf16), tokenizer.json, tokenizer_config.json (with the
// chat template) and special_tokens_map.json into `directory`, the weights last. Architectures llama, qwen2, qwen3 with
// byte-level BPE; what else a file asks for is refused by name, before anything is written.
Result<ImportSummary> import_gguf(const fs::path& file, const fs::path& directory);

}  // namespace tandem::model
