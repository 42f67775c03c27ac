// Makes the tokenizer of a tiny model: byte-level BPE whose merges run across words, so that a phrase which stands in
// every text (a system prompt, the frame of a call) becomes a single token.
#pragma once

#include <span>
#include <string>

#include "base/json.h"

namespace tandem::trainer {

struct PhraseTokenizerSettings {
  int vocabulary = 1024;                 // at most; bytes and special tokens included
  int least_count = 2;                   // of a pair that is merged
  std::string cut = "";                  // a regular expression: what it matches stays a piece of its own
  std::span<const std::string> special;  // get the first ids
};

// A tokenizer.json that HF `tokenizers` reads too. `texts` are without special tokens.
Result<Json> make_phrase_tokenizer(std::span<const std::string> texts, const PhraseTokenizerSettings& settings);

}  // namespace tandem::trainer
