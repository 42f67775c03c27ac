// Parameters behind the question mark of a path.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace tandem::serve {

inline int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// With %XX and + as what they stand for; a % that begins no such thing stands for itself.
inline std::string query_text(std::string_view part) {
  std::string text;
  for (size_t i = 0; i < part.size(); ++i) {
    const int high = part[i] == '%' && i + 2 < part.size() ? hex_digit(part[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(part[i + 2]) : -1;
    if (low >= 0) {
      text += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      text += part[i] == '+' ? ' ' : part[i];
    }
  }
  return text;
}

// A value of a query such as "mode=keep&x=1"; the last one counts, and a missing one is empty.
inline std::string query_parameter(std::string_view query, std::string_view name) {
  std::string value;
  while (!query.empty()) {
    const auto part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), part.size() + 1));
    const size_t equals = std::min(part.find('='), part.size());
    if (part.substr(0, equals) == name) value = query_text(part.substr(std::min(part.size(), equals + 1)));
  }
  return value;
}

}  // namespace tandem::serve
