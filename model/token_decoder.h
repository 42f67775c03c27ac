// Converts tokens to text by their names: the `decoder` of tokenizer.json.
//
// A decoder of HF tokenizers sees all tokens of a text at once. Read is what depends on one token and on whether it is
// the first of them, so that a text can be decoded while it comes; what else there is is refused by name.
//
// Thread safety: const methods from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "model/byte_alphabet.h"
#include "model/pre_tokenizer.h"

namespace tandem::model {

class TokenDecoder {
 public:
  // null (tokens with spaces between them), ByteLevel, WordPiece, Metaspace; or a chain of Replace (of a String),
  // Strip, ByteFallback and Fuse, at its end the Strip of one leading space.
  static Result<TokenDecoder> from_json(const Json& json);

  // The text of a token behind others.
  std::string text_of(const std::string& name) const;
  // The text of a token at the beginning of a text; no value where it is the same.
  std::optional<std::string> opening_of(const std::string& name) const;
  // Whether it stands for a byte: rows of such tokens are text only where all of it is UTF-8.
  bool is_byte(const std::string& name) const { return byte_fallback_ && byte_of(name).has_value(); }
  bool byte_fallback() const { return byte_fallback_; }
  // Whether a text loses its first space.
  bool strips_leading_space() const { return strips_leading_space_; }

 private:
  enum class Kind : uint8_t { kChain, kSpaced, kByteLevel, kMetaspace, kWordPiece };
  struct Strip {
    std::string content;
    size_t start = 0, stop = 0;
  };
  // One step of a chain: a replacement, or a strip.
  struct Step {
    std::pair<std::string, std::string> replace;
    std::optional<Strip> strip;
  };
  Status read_chain(const std::vector<const Json*>& steps);
  std::string chained(std::string text) const;
  std::string cleaned(std::string token) const;
  std::string with_marks_as(std::string_view name, std::string_view replacement) const;
  static std::optional<uint8_t> byte_of(std::string_view name);

  Kind kind_ = Kind::kChain;
  ByteAlphabet alphabet_;
  std::vector<Step> steps_;
  bool byte_fallback_ = false, strips_leading_space_ = false;
  std::string prefix_ = "##";  // of WordPiece
  bool cleans_up_ = true;      // WordPiece
  Metaspace metaspace_;
};

}  // namespace tandem::model
