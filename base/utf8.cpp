#include "base/utf8.h"

namespace tandem {
namespace {

uint8_t byte_at(std::string_view text, size_t index) { return static_cast<uint8_t>(text[index]); }

}  // namespace

Utf8Step next_character(std::string_view text) {
  const uint8_t lead = byte_at(text, 0);
  if (lead < 0x80) return {Utf8Step::kCharacter, 1, lead};
  int following = 0;
  uint8_t low =
      0x80;  // bounds of the second byte, which exclude overlong forms, surrogates and what lies beyond Unicode
  uint8_t high = 0xbf;
  char32_t character = 0;
  if (lead >= 0xc2 && lead <= 0xdf) {
    following = 1;
    character = lead & 0x1f;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    following = 2;
    character = lead & 0x0f;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    following = 3;
    character = lead & 0x07;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  } else {
    return {Utf8Step::kInvalid, 1, 0xfffd};
  }
  for (int i = 1; i <= following; ++i) {
    if (static_cast<size_t>(i) >= text.size()) return {Utf8Step::kIncomplete, static_cast<uint8_t>(i), 0xfffd};
    const uint8_t byte = byte_at(text, i);
    if (byte < low || byte > high) return {Utf8Step::kInvalid, static_cast<uint8_t>(i), 0xfffd};
    character = (character << 6) | (byte & 0x3f);
    low = 0x80;
    high = 0xbf;
  }
  return {Utf8Step::kCharacter, static_cast<uint8_t>(following + 1), character};
}

void append_utf8(char32_t c, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | (c >> 6));
    put(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    put(0xe0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3f));
    put(0x80 | (c & 0x3f));
  } else {
    put(0xf0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3f));
    put(0x80 | ((c >> 6) & 0x3f));
    put(0x80 | (c & 0x3f));
  }
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = next_character(text);
    if (step.kind != Utf8Step::kCharacter) return false;
    text.remove_prefix(step.length);
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = next_character(text);
    if (step.kind == Utf8Step::kCharacter) {
      out.append(text.substr(0, step.length));
    } else {
      out.append("\xef\xbf\xbd");
    }
    text.remove_prefix(step.length);
  }
  return out;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

}  // namespace tandem
