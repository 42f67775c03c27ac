// A sentence encoder: texts, as tokens, into vectors of length 1 whose dot products say how alike they are.
//
// BERT (Devlin et al. 2019) without its pooler: embeddings of word, position and the first segment, layers with norms
// behind attention and MLP; then the mean over all tokens of the text, special ones among them, and the vector divided
// by its length (Reimers & Gurevych 2019). All in fp32. Texts lie one behind the other without padding, so a batch of
// any lengths costs what its tokens cost, and a text has the same bits alone and in any batch.
//
// Thread safety: const methods from any thread, each with a stream of its own.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "kernels/stream.h"
#include "model/encoder_config.h"
#include "model/token.h"

namespace tandem::model {

class Encoder {
 public:
  // A Hugging Face directory; tensors are f32, f16 or bf16, under BertModel's names or behind "bert.". All missing
  // tensors are named at once; one of another shape than the config says is kInvalid.
  static Result<Encoder> load(const fs::path& directory, kernels::Stream& stream);
  // Normal draws of deviation 0.02 (norms one, biases zero): for measuring how fast a shape is.
  static Result<Encoder> random(const EncoderConfig& config, uint64_t seed, kernels::Stream& stream);

  const EncoderConfig& config() const { return config_; }

  // [text][width]. kInvalid where a text has no token, more than `positions`, or one outside the vocabulary.
  Result<std::vector<float>> embed(kernels::Stream& stream, std::span<const std::vector<TokenId>> texts) const;

 private:
  struct Norm {
    std::vector<float> weight, bias;
  };
  struct Linear {
    std::vector<float> packed, bias;
    int outputs = 0, inputs = 0;
  };
  struct Layer {
    Linear qkv, output, up, down;
    Norm attention_norm, mlp_norm;
  };
  using Tensors = std::map<std::string, std::vector<float>>;
  class Pass;

  static Result<Encoder> build(const EncoderConfig& config, Tensors tensors, kernels::Stream& stream);

  EncoderConfig config_;
  std::vector<float> words_, positions_;  // the first segment's embedding is added to the positions
  Norm norm_;
  std::vector<Layer> layers_;
};

}  // namespace tandem::model
