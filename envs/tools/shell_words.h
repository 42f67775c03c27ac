// Words of a shell's command line, for commands that we make ourselves.
#pragma once

#include <string>
#include <string_view>

#include "base/utf8.h"

namespace tandem::envs {

// One word for bash, whatever is in it; of valid UTF-8 for any POSIX shell. Bytes that are no UTF-8 are written as
// numbers, since command lines travel as JSON.
inline std::string shell_quoted(std::string_view text) {
  if (!is_valid_utf8(text)) {
    std::string word = "$'";
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      for (const char digit : {'\\', static_cast<char>('0' + byte / 64), static_cast<char>('0' + byte / 8 % 8),
                               static_cast<char>('0' + byte % 8)})
        word += digit;
    }
    return word + "'";
  }
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'')
      word += "'\\''";
    else
      word += c;
  }
  return word + "'";
}

}  // namespace tandem::envs
