// Regular expressions of JSON Schema's `pattern`, by ECMA-262's syntax with the u flag, as automata.
//
// As there, an expression matches anywhere in a text unless ^ and $ say otherwise. Capturing groups count as groups,
// lazy quantifiers as greedy ones: what matches is the same. What no automaton can do or is not implemented
// (back references, look-around, word boundaries, \p) is refused by name and place. Bounded: an expression of at most
// kMaxPatternBytes, whose automaton and the work for it are limited, else kExhausted.
//
// \d, \w, \s and . are ECMA-262's: \d and \w are ASCII, and . is any character but \n, \r, U+2028 and U+2029.
#pragma once

#include <string_view>

#include "model/constraint/dfa.h"

namespace tandem::model::constraint {

inline constexpr size_t kMaxPatternBytes = 16384;

// `work` is what may still be done, in visits of states, and is counted down; 20 million take about half a second.
Result<Dfa> compile_pattern(std::string_view pattern, size_t& work);
Result<Dfa> compile_pattern(std::string_view pattern);

}  // namespace tandem::model::constraint
