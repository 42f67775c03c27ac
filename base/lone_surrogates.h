// JSON texts with halves of characters: servers that cut a text for a stream at 16-bit units write \ud83c at the end of
// one event and \udf89 at the beginning of the next, which no reader of JSON takes.
//
// mark_lone_surrogates() replaces each half by a character that nobody uses (U+10F800 and the 2,047 behind it). A
// SurrogateJoiner joins two adjacent halves to a whole character.
//
// Thread safety: mark from any thread; one owner of a joiner.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// The JSON text with a mark in place of each escaped half that has no other half beside it.
std::string mark_lone_surrogates(std::string_view json);

class SurrogateJoiner {
 public:
  // Takes the next piece of the text and returns what is certain by now. A first half at its end is held back.
  std::string push(std::string_view piece);
  // Returns a half that is still held back as U+FFFD.
  std::string finish();

 private:
  std::string held_;
};

}  // namespace tandem
