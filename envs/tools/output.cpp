#include "envs/tools/output.h"

#include <algorithm>
#include <charconv>

#include "base/utf8.h"
#include "envs/tools/escapes.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

std::string cut_mark(uint64_t bytes) { return "\n[... " + std::to_string(bytes) + " bytes left out ...]\n"; }

// How many bytes of an output are gone with `cut`, which may have been cut before: then a mark in it says of how many.
uint64_t bytes_of_cut(std::string_view cut) {
  constexpr std::string_view kBegin = "\n[... ", kEnd = " bytes left out ...]\n";
  const size_t at = cut.find(kBegin);
  if (at == std::string_view::npos) return cut.size();
  uint64_t bytes = 0;
  const char* first = cut.data() + at + kBegin.size();
  const auto [end, error] = std::from_chars(first, cut.data() + cut.size(), bytes);
  const auto digits = static_cast<size_t>(end - first);
  if (error != std::errc() || !cut.substr(at + kBegin.size() + digits).starts_with(kEnd)) return cut.size();
  return cut.size() - (kBegin.size() + digits + kEnd.size()) + bytes;
}

}  // namespace

size_t utf8_length(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char first = at(0);
  size_t length = first < 0x80                    ? 1
                  : first >= 0xC2 && first < 0xE0 ? 2
                  : (first & 0xF0) == 0xE0        ? 3
                  : first >= 0xF0 && first < 0xF5 ? 4
                                                  : 0;
  if (length == 0 || bytes.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  if (first == 0xE0 && at(1) < 0xA0) return 0;  // overlong
  if (first == 0xED && at(1) > 0x9F) return 0;  // surrogates
  if (first == 0xF0 && at(1) < 0x90) return 0;
  if (first == 0xF4 && at(1) > 0x8F) return 0;
  return length;
}

void BoundedOutput::append(std::string_view bytes) {
  total_ += bytes.size();
  const size_t head_limit = limit_ / 2;
  if (head_.size() < head_limit) {
    const size_t take = std::min(head_limit - head_.size(), bytes.size());
    head_.append(bytes.substr(0, take));
    bytes.remove_prefix(take);
  }
  const size_t tail_limit = limit_ - head_limit;
  if (bytes.size() > tail_limit) {
    tail_.assign(bytes.substr(bytes.size() - tail_limit));
    return;
  }
  tail_.append(bytes);
  if (tail_.size() > 2 * tail_limit) tail_.erase(0, tail_.size() - tail_limit);
}

std::string BoundedOutput::text() const {
  const size_t tail_limit = limit_ - limit_ / 2;
  if (!truncated()) return head_ + tail_;
  const auto shown = std::string_view(tail_).substr(tail_.size() - std::min(tail_.size(), tail_limit));
  return head_ + cut_mark(total_ - head_.size() - shown.size()) + std::string(shown);
}

std::string bound_output(std::string_view text, size_t limit, bool& truncated) {
  if (text.size() <= limit) return std::string(text);
  truncated = true;
  auto head = text.substr(0, limit / 2);
  auto tail = text.substr(text.size() - (limit - limit / 2));
  if (const auto end = head.rfind('\n'); end != std::string_view::npos && end > head.size() / 2)
    head = head.substr(0, end);
  if (const auto begin = tail.find('\n'); begin != std::string_view::npos && begin < tail.size() / 2) {
    tail = tail.substr(begin + 1);
  }
  while (!head.empty() && (static_cast<unsigned char>(head.back()) & 0xC0) == 0x80) head.remove_suffix(1);
  if (!head.empty() && static_cast<unsigned char>(head.back()) >= 0xC0) head.remove_suffix(1);
  while (!tail.empty() && (static_cast<unsigned char>(tail.front()) & 0xC0) == 0x80) tail.remove_prefix(1);
  const auto cut = text.substr(head.size(), text.size() - head.size() - tail.size());
  return std::string(head) + cut_mark(bytes_of_cut(cut)) + std::string(tail);
}

std::string make_printable(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    if (const size_t escape = control_sequence_length(bytes); escape > 0) {
      bytes.remove_prefix(escape);
      continue;
    }
    if (bytes.starts_with("\r\n")) {
      bytes.remove_prefix(1);
      continue;
    }
    const size_t length = utf8_length(bytes);
    const auto first = static_cast<unsigned char>(bytes[0]);
    const bool control = (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F;
    if (length == 0 || control) {
      text += kReplacement;
    } else {
      text.append(bytes.substr(0, length));
    }
    bytes.remove_prefix(std::max<size_t>(length, 1));
  }
  return text;
}

std::string quotable(std::string_view bytes) {
  constexpr size_t kLongest = 600;
  std::string text = make_printable(bytes);
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::replace(text.begin(), text.end(), '\t', ' ');
  if (text.size() <= kLongest) return text;
  constexpr size_t kHalf = kLongest / 2 - 10;
  return replace_invalid_utf8(text.substr(0, kHalf)) + " [...] " +
         replace_invalid_utf8(text.substr(text.size() - kHalf));
}

Status quotable(const Status& status) { return Status(status.code(), quotable(status.message())).hint(status.hint()); }

}  // namespace tandem::envs
