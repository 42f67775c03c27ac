#include "rollout/agent/spoken_text.h"

#include <algorithm>

namespace tandem::rollout {
namespace {

constexpr std::string_view kCall = "<tool_call>";
constexpr std::string_view kUnfinished = "\xEF\xBF\xBD";  // what a part of a character is decoded as

}  // namespace

std::string SpokenText::grow(std::string_view message) {
  size_t end = std::min(message.size(), message.find(kCall));
  if (end == message.size()) {
    // What may become a call, or a character.
    for (size_t length = std::min(kCall.size() - 1, end); length > 0; --length) {
      if (!message.ends_with(kCall.substr(0, length))) continue;
      end -= length;
      break;
    }
    while (message.substr(0, end).ends_with(kUnfinished)) end -= kUnfinished.size();
  }
  while (end > 0 && (message[end - 1] == '\n' || message[end - 1] == ' ')) --end;  // shown once something follows
  if (end <= shown_) return "";
  std::string piece(message.substr(shown_, end - shown_));
  shown_ = end;
  return piece;
}

}  // namespace tandem::rollout
