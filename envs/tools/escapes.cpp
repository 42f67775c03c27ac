#include "envs/tools/escapes.h"

#include <algorithm>

namespace tandem::envs {
namespace {

constexpr size_t kLongestSequence = 4096;   // no program writes a longer one; a colour with its background has 40
constexpr size_t kLongestString = 4 << 20;  // titles and links are short, images are not

bool is_between(char c, char first, char last) { return c >= first && c <= last; }

// Behind the two bytes that begin a control sequence: parameters, what stands between, and the last letter.
Escape control_sequence(std::string_view bytes, size_t begin) {
  const size_t most = std::min(bytes.size(), kLongestSequence);
  size_t at = begin;
  while (at < most && is_between(bytes[at], '0', '?')) ++at;
  const auto parameters = bytes.substr(begin, at - begin);
  while (at < most && is_between(bytes[at], ' ', '/')) ++at;
  if (at == bytes.size()) return {at, 0, {}};
  if (at == most || !is_between(bytes[at], '@', '~')) return {};
  return {at + 1, bytes[at], parameters};
}

// A text for the terminal itself, up to the bell or the mark that ends it. Without one, only what begins it is one: no
// output is lost behind it.
Escape string_sequence(std::string_view bytes, size_t begin) {
  // Images and the clipboard come in several lines.
  const auto rest = bytes.substr(begin);
  const bool has_lines =
      bytes[begin - 1] == 'P' || bytes[begin - 1] == '_' || rest.starts_with("1337;") || rest.starts_with("52;");
  for (size_t i = begin; i < std::min(bytes.size(), kLongestString); ++i) {
    if (bytes[i] == '\a') return {i + 1, 0, {}};
    if (bytes.substr(i).starts_with("\x1b\\") || bytes.substr(i).starts_with("\xC2\x9C")) return {i + 2, 0, {}};
    if (bytes[i] == '\x1b' || (bytes[i] == '\n' && !has_lines)) break;
  }
  return {begin, 0, {}};
}

}  // namespace

size_t control_sequence_length(std::string_view bytes) {
  const bool is_one = bytes.starts_with("\x1b[") || bytes.starts_with("\xC2\x9B");
  return is_one ? control_sequence(bytes, 2).length : 0;
}

Escape escape_at(std::string_view bytes) {
  if (bytes.starts_with("\xC2\x9B")) return control_sequence(bytes, 2);
  if (bytes.starts_with("\xC2\x9D")) return string_sequence(bytes, 2);
  if (bytes.empty() || bytes[0] != '\x1b') return {};
  if (bytes.size() == 1) return {1, 0, {}};
  if (bytes[1] == '[') return control_sequence(bytes, 2);
  if (std::string_view("]PX^_").find(bytes[1]) != std::string_view::npos) return string_sequence(bytes, 2);
  if (std::string_view("()*+#% ").find(bytes[1]) != std::string_view::npos)
    return {std::min<size_t>(3, bytes.size()), 0, {}};
  return {is_between(bytes[1], '0', '~') ? size_t{2} : 0, 0, {}};
}

}  // namespace tandem::envs
