// The alphabet in which byte-level tokenizers write bytes, so that tokens are printable.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace tandem::model {

// GPT-2's printable stand-ins: byte -> character. Printable Latin-1 stands for itself, the rest is moved behind U+0100.
inline std::array<char32_t, 256> byte_characters() {
  std::array<char32_t, 256> table{};
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174);
    table[byte] = printable ? static_cast<char32_t>(byte) : next++;
  }
  return table;
}

class ByteAlphabet {
 public:
  ByteAlphabet() {
    const auto characters = byte_characters();
    for (int byte = 0; byte < 256; ++byte) bytes_[characters[byte]] = byte;
  }
  // The bytes that `name` stands for; nothing where one of its characters stands for none.
  std::optional<std::string> bytes_of(std::string_view name) const {
    std::string bytes;
    for (size_t at = 0; at < name.size();) {
      const Utf8Step step = next_character(name.substr(at));
      if (step.character >= kCharacters || (bytes_[step.character] < 0)) return std::nullopt;
      bytes.push_back(static_cast<char>(bytes_[step.character]));
      at += step.length;
    }
    return bytes;
  }

 private:
  static constexpr size_t kCharacters = 512;
  std::array<int, kCharacters> bytes_ = [] {
    std::array<int, kCharacters> none{};
    none.fill(-1);
    return none;
  }();
};

}  // namespace tandem::model
