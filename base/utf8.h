// Text as Unicode characters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

// One step through UTF-8. `length` bytes from the start of the text are one character, or the longest part of one that
// is still wrong (the maximal subpart that Python and Rust replace by one U+FFFD). `length` is at least 1 for a text
// that is not empty.
struct Utf8Step {
  enum Kind : uint8_t { kCharacter, kInvalid, kIncomplete };  // kIncomplete: right so far, the text ends too early
  Kind kind = kCharacter;
  uint8_t length = 0;
  char32_t character = 0;
};
Utf8Step next_character(std::string_view text);

void append_utf8(char32_t character, std::string& out);

bool is_valid_utf8(std::string_view text);

// Every wrong sequence becomes one U+FFFD, as Python's errors="replace" and Rust's from_utf8_lossy do it.
std::string replace_invalid_utf8(std::string_view text);

// Unicode's White_Space property.
bool is_white_space(char32_t character);

}  // namespace tandem
