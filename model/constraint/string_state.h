// Inside of a JSON string: from bytes to characters, and whether the rules of the string can still be met.
//
// The bytes are RFC 8259's: raw UTF-8 without control characters, and escapes, those of surrogates only in pairs. A
// step that leaves no way to end the string within its rules is refused at once, also in the middle of a character.
//
// Thread safety: none; a value.
#pragma once

#include <cstdint>

#include "model/constraint/dfa.h"

namespace tandem::model::constraint {

inline constexpr uint32_t kUnlimited = UINT32_MAX;

constexpr bool is_json_space(uint8_t byte) { return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t'; }

enum class ByteStep : uint8_t { kRefused, kInside, kClosed };

struct StringState {
  // Characters that may still come and must still come; with a Dfa its state and nothing.
  uint32_t a = kUnlimited;
  uint32_t b = 0;
  uint32_t decoder = 0;  // 0: between two characters
  uint8_t guard = 0;     // a byte that may not stand behind a '<', but as an escape; 0: any may
  bool less = false;     // with a guard: whether the byte before is a '<'
  friend bool operator==(const StringState&, const StringState&) = default;
};

// `dfa`: what the string must match; null where only lengths count.
ByteStep step_string(const Dfa* dfa, StringState& state, uint8_t byte);

// One whole character further, as it stands or escaped: what step_string says of all of its bytes.
ByteStep step_character(const Dfa* dfa, StringState& state, char32_t character, bool escaped);

// A text as it stands, without quotes and escapes; `state.decoder` is 0 where it may end, if the automaton accepts.
ByteStep step_raw(const Dfa& dfa, StringState& state, uint8_t byte);

// The inside of a string in the one spelling that dump_json gives it; lengths do not count.
ByteStep step_canonical(StringState& state, uint8_t byte);

}  // namespace tandem::model::constraint
