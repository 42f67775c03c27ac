// Words of a shell's command line, for commands that we make ourselves.
#pragma once

#include <string>
#include <string_view>

namespace tandem::envs {

// One word for a POSIX shell, whatever is in it.
inline std::string shell_quoted(std::string_view text) {
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
