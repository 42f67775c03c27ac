// A sentence encoder with its tokenizer: texts into vectors of length 1.
//
// Thread safety: const methods from any thread, each with a stream of its own.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "model/encoder.h"
#include "model/tokenizer.h"

namespace tandem::model {

class TextEncoder {
 public:
  // A Hugging Face directory. kInvalid where tokenizer and encoder do not belong together.
  static Result<TextEncoder> load(const fs::path& directory, kernels::Stream& stream);
  // The digest of the files that an embedding depends on: two directories with the same one give the same vectors.
  // Reads all, and loads nothing.
  static Result<Digest> identity(const fs::path& directory);

  const EncoderConfig& config() const { return encoder_.config(); }

  struct Tokens {
    std::vector<TokenId> ids;  // special ones among them
    bool truncated = false;    // the text was longer than the model takes, and lost its end
  };
  // kInvalid for a text without tokens.
  Result<Tokens> tokens(std::string_view text) const;

  // [text][width], of any number of texts.
  Result<std::vector<float>> embed(kernels::Stream& stream, std::span<const std::string> texts) const;
  // Embeds texts (as tokens() returns them) in one batch.
  Result<std::vector<float>> embed_tokens(kernels::Stream& stream, std::span<const std::vector<TokenId>> texts) const {
    return encoder_.embed(stream, texts);
  }

 private:
  TextEncoder(Tokenizer tokenizer, Encoder encoder) : tokenizer_(std::move(tokenizer)), encoder_(std::move(encoder)) {}
  Tokenizer tokenizer_;
  Encoder encoder_;
};

inline constexpr size_t kEncoderBatchTokens = 4096;  // enough that products are bound by arithmetic

}  // namespace tandem::model
