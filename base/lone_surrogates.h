// JSON texts with halves of characters: servers that cut a text for a stream at 16-bit units write \ud83c at the end of
// one event and \udf89 at the beginning of the next, which no reader of JSON takes.
//
// mark() puts a character that nobody uses (U+10F800 and the 2,047 behind it) in the place of each half; a
// SurrogateJoiner makes whole characters of two that have come together.
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
  // `piece` goes on the text: what is certain by now. A first half at its end is held back.
  std::string push(std::string_view piece);
  // A half that is still held back, as U+FFFD.
  std::string finish();

 private:
  std::string held_;
};

}  // namespace tandem
