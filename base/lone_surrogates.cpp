#include "base/lone_surrogates.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/utf8.h"

namespace tandem {
namespace {

constexpr char32_t kFirst = 0xd800, kSecond = 0xdc00, kEnd = 0xe000;  // of the halves
constexpr char32_t kMarks = 0x10f800;
constexpr char32_t kReplacement = 0xfffd;

// The half that an escape at `at` writes.
std::optional<char32_t> half_at(std::string_view json, size_t at) {
  constexpr size_t kEscape = 6;
  const auto escape = json.substr(std::min(at, json.size()), kEscape);
  if (escape.size() < kEscape || !escape.starts_with("\\u")) return std::nullopt;
  uint32_t value = 0;
  const char* const last = escape.data() + escape.size();
  const auto [end, error] = std::from_chars(escape.data() + 2, last, value, 16);
  if (error != std::errc() || end != last || value < kFirst || value >= kEnd) return std::nullopt;
  return value;
}

std::optional<char32_t> half_of(char32_t mark) {
  if (mark < kMarks || mark - kMarks >= kEnd - kFirst) return std::nullopt;
  return mark - kMarks + kFirst;
}

bool is_first(char32_t half) { return half < kSecond; }

}  // namespace

std::string mark_lone_surrogates(std::string_view json) {
  std::string out;
  for (size_t at = 0; at < json.size();) {
    if (json[at] != '\\') {
      out += json[at++];
      continue;
    }
    const auto half = half_at(json, at);
    if (!half) {  // two bytes, so that an escaped backslash hides what stands behind it
      out += json.substr(at, 2);
      at += 2;
      continue;
    }
    const auto next = half_at(json, at + 6);
    if (is_first(*half) && next && !is_first(*next)) {
      out += json.substr(at, 12);
      at += 12;
      continue;
    }
    append_utf8(kMarks + (*half - kFirst), out);
    at += 6;
  }
  return out;
}

std::string SurrogateJoiner::push(std::string_view piece) {
  const std::string text = std::exchange(held_, {}).append(piece);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto step = next_character(std::string_view(text).substr(at));
    const auto half = half_of(step.character);
    if (!half) {
      out += text.substr(at, step.length);
      at += step.length;
      continue;
    }
    const size_t behind = at + step.length;
    if (is_first(*half) && behind == text.size()) {
      held_ = text.substr(at);
      break;
    }
    const auto next =
        behind < text.size() ? half_of(next_character(std::string_view(text).substr(behind)).character) : std::nullopt;
    const bool whole = is_first(*half) && next && !is_first(*next);
    append_utf8(whole ? 0x10000 + ((*half - kFirst) << 10) + (*next - kSecond) : kReplacement, out);
    at = whole ? behind + step.length : behind;  // all marks are as long
  }
  return out;
}

std::string SurrogateJoiner::finish() {
  if (held_.empty()) return {};
  held_.clear();
  std::string out;
  append_utf8(kReplacement, out);
  return out;
}

}  // namespace tandem
