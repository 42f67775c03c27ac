#include "base/json_line.h"

#include <array>
#include <string_view>
#include <utility>

namespace tandem {

std::string dump_json_line(const Json& value) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kSeparators = {
      {{"\xE2\x80\xA8", "\\u2028"}, {"\xE2\x80\xA9", "\\u2029"}, {"\xC2\x85", "\\u0085"}}};
  std::string line = dump_json(value);
  // They stand in texts and keys alone, where an escape says the same.
  for (const auto& [separator, escape] : kSeparators) {
    for (size_t at = line.find(separator); at != std::string::npos; at = line.find(separator, at + escape.size()))
      line.replace(at, separator.size(), escape);
  }
  return line;
}

}  // namespace tandem
