// The scripts of characters as the pre-tokenizer UnicodeScripts of HF tokenizers has them, whose table is of an older
// Unicode. Hiragana and Katakana are Han there.
//
// Thread safety: any thread.
#pragma once

#include <cstdint>

namespace tandem::model {

// The same number for characters of one script, and of no other. 0: the character goes with any script.
uint8_t script_of(char32_t character);

}  // namespace tandem::model
