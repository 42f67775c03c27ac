#include "model/constraint/string_state.h"

#include <algorithm>

namespace tandem::model::constraint {

namespace {

// The decoder in 32 bits: kind, bytes or digits that are missing, bytes of the whole character, and the value so far.
enum Kind : uint32_t { kIdle, kUtf8, kEscape, kHex, kLowEscape, kLowLetter, kLowHex };

constexpr uint32_t packed(Kind kind, uint32_t missing, uint32_t length, uint32_t value) {
  return kind | missing << 3 | length << 6 | value << 9;
}
Kind kind_of(uint32_t decoder) { return static_cast<Kind>(decoder & 7); }
uint32_t missing_of(uint32_t decoder) { return decoder >> 3 & 7; }
uint32_t length_of(uint32_t decoder) { return decoder >> 6 & 7; }
uint32_t value_of(uint32_t decoder) { return decoder >> 9; }

int hex_digit(uint8_t byte) {
  if (byte >= '0' && byte <= '9') return byte - '0';
  const uint8_t lower = byte | 32;
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Whether one of the characters may come next, and taking one.
struct Rules {
  const Dfa* dfa;
  StringState& state;

  bool allows(char32_t first, char32_t last) const {
    if (first > last) return false;
    return dfa != nullptr ? dfa->leads_on(static_cast<int32_t>(state.a), first, last) : state.a > 0;
  }
  ByteStep take(char32_t character) {
    if (dfa != nullptr) {
      const int32_t to = dfa->next(static_cast<int32_t>(state.a), character);
      if (to == Dfa::kDead) return ByteStep::kRefused;
      state.a = static_cast<uint32_t>(to);
    } else {
      if (state.a == 0) return ByteStep::kRefused;
      if (state.a != kUnlimited) --state.a;
      if (state.b > 0) --state.b;
    }
    state.decoder = 0;
    return ByteStep::kInside;
  }
  ByteStep go_on(uint32_t decoder, bool allowed) {
    state.decoder = decoder;
    return allowed ? ByteStep::kInside : ByteStep::kRefused;
  }
};

// A character of `length` bytes of which `missing` are still to come.
ByteStep utf8(Rules rules, uint32_t value, uint32_t missing, uint32_t length) {
  static constexpr char32_t kFirst[] = {0, 0, 0x80, 0x800, 0x10000};
  const char32_t first = std::max<char32_t>(value << (6 * missing), kFirst[length]);
  const char32_t last = std::min<char32_t>(((value + 1) << (6 * missing)) - 1, kLastCharacter);
  if (missing == 0) {
    if (first != value || value > kLastCharacter || (value >= 0xD800 && value <= 0xDFFF)) return ByteStep::kRefused;
    return rules.take(value);
  }
  const bool allowed =
      rules.allows(first, std::min<char32_t>(last, 0xD7FF)) || rules.allows(std::max<char32_t>(first, 0xE000), last);
  return rules.go_on(packed(kUtf8, missing, length, value), allowed);
}

// \u with `missing` digits to come.
ByteStep hexadecimal(Rules rules, uint32_t value, uint32_t missing) {
  const char32_t first = value << (4 * missing), last = ((value + 1) << (4 * missing)) - 1;
  if (missing == 0) {
    if (value < 0xD800 || value > 0xDFFF) return rules.take(value);
    if (value > 0xDBFF) return ByteStep::kRefused;
    const char32_t pair = 0x10000 + ((value - 0xD800) << 10);
    return rules.go_on(packed(kLowEscape, 0, 0, value), rules.allows(pair, pair + 0x3FF));
  }
  const char32_t high = std::max<char32_t>(first, 0xD800), high_end = std::min<char32_t>(last, 0xDBFF);
  const bool allowed = rules.allows(first, std::min<char32_t>(last, 0xD7FF)) ||
                       rules.allows(std::max<char32_t>(first, 0xE000), last) ||
                       (high <= high_end &&
                        rules.allows(0x10000 + ((high - 0xD800) << 10), 0x10000 + ((high_end - 0xD800) << 10) + 0x3FF));
  return rules.go_on(packed(kHex, missing, 0, value), allowed);
}

// The second half of a pair, whose first half is `high`. While digits are missing it has at most 12 bits.
ByteStep low_surrogate(Rules rules, uint32_t high, uint32_t value, uint32_t missing) {
  const char32_t base = 0x10000 + ((high - 0xD800) << 10);
  const char32_t first = std::max<char32_t>(value << (4 * missing), 0xDC00);
  const char32_t last = std::min<char32_t>(((value + 1) << (4 * missing)) - 1, 0xDFFF);
  if (first > last) return ByteStep::kRefused;
  if (missing == 0) return rules.take(base + (value - 0xDC00));
  return rules.go_on(packed(kLowHex, missing, 0, (high & 0x7FF) | (value & 0xFFF) << 11),
                     rules.allows(base + (first - 0xDC00), base + (last - 0xDC00)));
}

ByteStep escaped(Rules rules, uint8_t byte) {
  switch (byte) {
    case '"':
    case '\\':
    case '/':
      return rules.take(byte);
    case 'b':
      return rules.take('\b');
    case 'f':
      return rules.take('\f');
    case 'n':
      return rules.take('\n');
    case 'r':
      return rules.take('\r');
    case 't':
      return rules.take('\t');
    case 'u':
      return hexadecimal(rules, 0, 4);
    default:
      return ByteStep::kRefused;
  }
}

ByteStep begin_utf8(Rules rules, uint8_t byte) {
  if (byte >= 0xC2 && byte < 0xE0) return utf8(rules, byte & 0x1F, 1, 2);
  if (byte >= 0xE0 && byte < 0xF0) return utf8(rules, byte & 0x0F, 2, 3);
  if (byte >= 0xF0 && byte < 0xF5) return utf8(rules, byte & 0x07, 3, 4);
  return ByteStep::kRefused;
}

ByteStep begin_character(Rules rules, uint8_t byte) {
  if (byte < 0x20) return ByteStep::kRefused;
  if (byte == '\\') return rules.go_on(packed(kEscape, 0, 0, 0), rules.allows(0, kLastCharacter));
  if (byte < 0x80) return rules.take(byte);
  return begin_utf8(rules, byte);
}

ByteStep go_on_utf8(Rules rules, uint8_t byte) {
  const uint32_t decoder = rules.state.decoder;
  if ((byte & 0xC0) != 0x80) return ByteStep::kRefused;
  return utf8(rules, value_of(decoder) << 6 | (byte & 0x3F), missing_of(decoder) - 1, length_of(decoder));
}

ByteStep step_plain(const Dfa* dfa, StringState& state, uint8_t byte) {
  Rules rules{dfa, state};
  const uint32_t decoder = state.decoder;
  switch (kind_of(decoder)) {
    case kIdle:
      if (byte == '"') {
        const bool may_end = dfa != nullptr ? dfa->accepts(static_cast<int32_t>(state.a)) : state.b == 0;
        return may_end ? ByteStep::kClosed : ByteStep::kRefused;
      }
      return begin_character(rules, byte);
    case kUtf8:
      return go_on_utf8(rules, byte);
    case kEscape:
      return escaped(rules, byte);
    case kHex: {
      const int digit = hex_digit(byte);
      if (digit < 0) return ByteStep::kRefused;
      return hexadecimal(rules, value_of(decoder) << 4 | digit, missing_of(decoder) - 1);
    }
    case kLowEscape:
      return rules.go_on(packed(kLowLetter, 0, 0, value_of(decoder)), byte == '\\');
    case kLowLetter:
      return byte == 'u' ? low_surrogate(rules, value_of(decoder), 0, 4) : ByteStep::kRefused;
    case kLowHex: {
      const int digit = hex_digit(byte);
      if (digit < 0) return ByteStep::kRefused;
      const uint32_t high = 0xD800 | (value_of(decoder) & 0x7FF), missing = missing_of(decoder);
      return low_surrogate(rules, high, (value_of(decoder) >> 11) << 4 | digit, missing - 1);
    }
  }
  return ByteStep::kRefused;
}

ByteStep step_canonical_plain(uint32_t& decoder, uint8_t byte) {
  const Kind kind = kind_of(decoder);
  if (kind == kEscape) {
    const bool unicode = byte == 'u';
    if (!unicode && byte != '"' && byte != '\\' && byte != 'b' && byte != 'f' && byte != 'n' && byte != 'r' &&
        byte != 't')
      return ByteStep::kRefused;
    decoder = unicode ? packed(kHex, 4, 0, 0) : 0;
    return ByteStep::kInside;
  }
  if (kind == kHex) {
    const uint32_t missing = missing_of(decoder), value = value_of(decoder);
    if (missing > 2) {
      if (byte != '0') return ByteStep::kRefused;
    } else if (missing == 2) {
      if (byte != '0' && byte != '1') return ByteStep::kRefused;
    } else {
      // Control characters that have a letter of their own are written with it.
      const bool hexadecimal = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');
      const bool has_letter = value == 0 && (byte == '8' || byte == '9' || byte == 'a' || byte == 'c' || byte == 'd');
      if (!hexadecimal || has_letter) return ByteStep::kRefused;
    }
    decoder = missing == 1 ? 0 : packed(kHex, missing - 1, 0, value << 4 | static_cast<uint32_t>(hex_digit(byte)));
    return ByteStep::kInside;
  }
  StringState plain{.decoder = decoder};
  const auto step = step_plain(nullptr, plain, byte);
  decoder = plain.decoder;
  return step;
}

// What a guard adds to `step`, which is given the decoder's state to change.
template <typename Step>
ByteStep guarded(StringState& state, uint8_t byte, const Step& step) {
  if (state.guard == 0) return step();
  const bool between = state.decoder == 0;
  if (between && state.less && byte == state.guard) return ByteStep::kRefused;
  const auto result = step();
  state.less = between && byte == '<';
  return result;
}

}  // namespace

ByteStep step_string(const Dfa* dfa, StringState& state, uint8_t byte) {
  return guarded(state, byte, [&] { return step_plain(dfa, state, byte); });
}

ByteStep step_character(const Dfa* dfa, StringState& state, char32_t character, bool escaped) {
  const auto first_byte = [&]() -> uint32_t {
    if (escaped) return '\\';
    if (character < 0x80) return character;
    if (character < 0x800) return 0xC0 | character >> 6;
    return character < 0x10000 ? 0xE0 | character >> 12 : 0xF0 | character >> 18;
  };
  if (state.guard != 0) {
    const uint32_t byte = first_byte();
    if (state.less && byte == state.guard) return ByteStep::kRefused;
    state.less = byte == '<';
  }
  return Rules{dfa, state}.take(character);
}

ByteStep step_raw(const Dfa& dfa, StringState& state, uint8_t byte) {
  const Rules rules{&dfa, state};
  if (state.decoder != 0) return go_on_utf8(rules, byte);
  return byte < 0x80 ? Rules(rules).take(byte) : begin_utf8(rules, byte);
}

ByteStep step_canonical(StringState& state, uint8_t byte) {
  return guarded(state, byte, [&] { return step_canonical_plain(state.decoder, byte); });
}

}  // namespace tandem::model::constraint
