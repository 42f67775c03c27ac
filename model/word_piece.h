// WordPiece encoding of one word: the longest token that it begins with, then the longest that continues it, and so on
// (Schuster & Nakajima 2012, as BERT does it). A word that cannot be made up like this is one unknown token.
//
// Thread safety: const methods from any thread.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/token.h"

namespace tandem::model {

class WordPiece {
 public:
  struct Options {
    TokenId unknown = 0;
    std::string prefix = "##";    // of the names of tokens that continue a word
    size_t max_characters = 100;  // a longer word is unknown
    bool whole_words = false;     // no token continues a word, and none is too long: the model WordLevel
  };

  // `names[id]` as tokenizer.json writes them; empty for ids that the model does not have.
  WordPiece(std::vector<std::string> names, Options options);

  // `piece` must be valid UTF-8.
  void encode(std::string_view piece, std::vector<TokenId>& out) const;

  // By id, the text that a token stands for: its name without the prefix.
  const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Table = std::unordered_map<std::string, TokenId, Hash, std::equal_to<>>;

  Options options_;
  std::vector<std::string> tokens_;
  Table beginnings_, continuations_;
  size_t longest_ = 0;  // bytes of the longest text
};

}  // namespace tandem::model
