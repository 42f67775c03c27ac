// Byte-pair encoding of one piece of text: symbols that stand next to each other are merged, lowest rank first,
// leftmost among equals, until nothing can be.
//
// Most pieces of real text are tokens themselves; those whose merges end in that one token are found by a single
// look-up, which is worked out once when the tokenizer is read. Nothing is cached at run time, so nothing grows and
// nothing is locked.
//
// Thread safety: const methods from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/token.h"

namespace tandem::model {

class Bpe {
 public:
  struct Merge {
    TokenId left = 0;
    TokenId right = 0;
    TokenId merged = 0;
  };
  struct Options {
    bool byte_level = true;          // symbols start as bytes, else as characters
    bool ignore_merges = false;      // a piece that is a token is that token, whatever the merges say
    bool byte_fallback = false;      // a character that is no token becomes its bytes' tokens <0x00>..<0xFF>
    bool fuse_unknown = false;       // unknown characters in a row become one token
    std::optional<TokenId> unknown;  // absent: unknown characters are left out
  };

  // `tokens[id]` is the text that the token stands for: bytes where byte_level, characters otherwise; empty for ids
  // that the model does not have. `byte_tokens` has the 256 ids that single bytes start as (byte_level) or fall back to
  // (byte_fallback), -1 where there is none. Merges in order of rank.
  Bpe(std::vector<std::string> tokens, std::span<const Merge> merges, std::vector<TokenId> byte_tokens,
      Options options);

  void encode(std::string_view piece, std::vector<TokenId>& out) const;

  // How many bytes of `piece` each of the ids that it was encoded as stands for, appended. Characters that were left
  // out count to the token behind them.
  void measure(std::string_view piece, std::span<const TokenId> ids, std::vector<size_t>& lengths) const;

  const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  struct Pair {
    uint64_t key;
    uint32_t rank;
    TokenId merged;
  };
  const Pair* find_pair(TokenId left, TokenId right) const;
  struct Word {
    uint32_t hash;
    TokenId id;  // -1: free
  };
  // The token in `table` whose text is `text`, -1 if none.
  TokenId find_text(std::string_view text, const std::vector<Word>& table) const;
  // The ids that a piece starts as are appended.
  void start_symbols(std::string_view piece, std::vector<TokenId>& ids) const;
  // Merge in place; the result is how many are left.
  size_t merge_short(std::span<TokenId> ids) const;
  size_t merge_long(std::span<TokenId> ids) const;

  std::vector<std::string> tokens_;
  std::vector<TokenId> byte_tokens_;
  Options options_;
  std::vector<Pair> pairs_;  // open addressing; key kNoPair is free
  uint64_t pair_mask_ = 0;
  std::vector<Word> words_;       // open addressing: tokens that their own text is encoded as
  std::vector<Word> characters_;  // where not byte_level: all tokens by text
};

}  // namespace tandem::model
