// Which characters BERT's normaliser and pre-tokenizer treat alike, by the tables of HF tokenizers: those of Unicode 8.
//
// Characters that came later belong to no class, and those that moved to another class since then stay where they were.
//
// Thread safety: const methods from any thread.
#pragma once

#include <unicode/uniset.h>

#include <memory>

#include "base/status.h"

namespace tandem::model {

class BertCharacters {
 public:
  // kUnfit where ICU lacks its tables.
  static Result<std::shared_ptr<const BertCharacters>> create();

  // Left out of cleaned text: controls, formats, private use, U+0000 and U+FFFD, but for tab and line ends.
  bool is_removed(char32_t character) const { return removed_.contains(static_cast<UChar32>(character)); }
  // Accents once they stand apart: marks that take no room.
  bool is_accent(char32_t character) const { return accents_.contains(static_cast<UChar32>(character)); }
  // A piece of its own: punctuation, and all of ASCII that is neither letter nor digit.
  bool is_punctuation(char32_t character) const { return punctuation_.contains(static_cast<UChar32>(character)); }
  // Ideographs, which get a space on either side.
  static bool is_ideograph(char32_t character);

 private:
  BertCharacters(icu::UnicodeSet removed, icu::UnicodeSet accents, icu::UnicodeSet punctuation);
  icu::UnicodeSet removed_, accents_, punctuation_;
};

}  // namespace tandem::model
