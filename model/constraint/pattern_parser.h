// A regular expression as a tree.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "model/constraint/dfa.h"

namespace tandem::model::constraint {

struct PatternNode {
  enum Kind : uint8_t { kCharacters, kBegin, kEnd, kSequence, kChoice, kRepeat };
  Kind kind = kSequence;
  std::vector<CharacterRange> characters;  // of kCharacters: ascending, apart from each other, no surrogates
  std::vector<PatternNode> children;       // one of kRepeat
  uint32_t least = 0;                      // of kRepeat
  std::optional<uint32_t> most;
};

// kInvalid names what is wrong or not implemented, and at which character.
Result<PatternNode> parse_pattern(std::string_view pattern);

}  // namespace tandem::model::constraint
