// The config of a sentence encoder, a BERT that maps a text to one vector.
//
// Read are config.json of `model_type` "bert" and, where they are there, the files of sentence-transformers:
// modules.json with the pooling that it names, and sentence_bert_config.json. Whatever would change an embedding and is
// not implemented (another activation, kind of positions or pooling, further modules) is refused by name.
// Values: copy, compare.
#pragma once

#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "model/config.h"

namespace tandem::model {

struct EncoderConfig {
  int layers = 0;
  int width = 0;
  int heads = 0;  // divides width
  int mlp_width = 0;
  int vocabulary = 0;
  int positions = 0;  // that have an embedding
  int types = 0;      // of segments; a text is all of the first
  int longest = 0;    // tokens of a text, special ones among them; what is longer is cut there. At most `positions`
  float norm_epsilon = 0;  // of layer norms
  int head_size() const { return width / heads; }
  friend bool operator==(const EncoderConfig&, const EncoderConfig&) = default;
};

// `longest` is max_seq_length of sentence_bert_config.json or else model_max_length of tokenizer_config.json, as
// sentence-transformers takes it.
Result<EncoderConfig> read_encoder_config(const fs::path& directory);
// Reads config.json alone; `longest` is `positions`.
Result<EncoderConfig> encoder_config_from_json(const Json& json);

// Names and shapes of the tensors that an embedding is computed from, without a prefix ("bert.").
std::vector<TensorSpec> tensor_specs(const EncoderConfig& config);

}  // namespace tandem::model
