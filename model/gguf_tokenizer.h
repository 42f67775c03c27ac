// The tokenizer files of a Hugging Face directory, from the metadata of a GGUF file.
#pragma once

#include "base/json.h"
#include "model/gguf.h"

namespace tandem::model {

struct TokenizerFiles {
  Json tokenizer;           // tokenizer.json
  Json tokenizer_config;    // tokenizer_config.json, with the chat template
  Json special_tokens_map;  // special_tokens_map.json
};

// Byte-level BPE (`tokenizer.ggml.model` "gpt2") with the pre-tokenizers smollm, gpt-2, llama-bpe and qwen2; others are
// refused by name. The settings of each are those of the Hugging Face tokenizer that llama.cpp made the name for.
Result<TokenizerFiles> tokenizer_files(const Gguf& gguf, int max_positions);

}  // namespace tandem::model
