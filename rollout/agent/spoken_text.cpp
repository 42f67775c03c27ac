#include "rollout/agent/spoken_text.h"

#include <vector>

namespace tandem::rollout {
namespace {

constexpr std::string_view kUnfinished = "\xEF\xBF\xBD";  // what a part of a character is decoded as

std::string text_of(const std::vector<model::ToolEvent>& events) {
  std::string text;
  for (const auto& event : events)
    if (event.kind == model::ToolEvent::kText) text += event.text;
  return text;
}

}  // namespace

std::string SpokenText::grow(std::string_view message) {
  while (message.ends_with(kUnfinished)) message.remove_suffix(kUnfinished.size());
  if (message.size() <= read_) return "";
  const auto piece = message.substr(read_);
  read_ = message.size();
  return text_of(stream_.push(piece).events);
}

}  // namespace tandem::rollout
