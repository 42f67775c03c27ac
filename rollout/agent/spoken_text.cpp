#include "rollout/agent/spoken_text.h"

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

SpokenText::SpokenText(model::ToolDialect own) {
  streams_.emplace_back(model::ToolDialect::kHermes);
  if (own != model::ToolDialect::kHermes) streams_.emplace_back(own);
}

std::string SpokenText::grow(std::string_view message) {
  while (message.ends_with(kUnfinished)) message.remove_suffix(kUnfinished.size());
  if (message.size() <= read_) return "";
  std::string piece(message.substr(read_));
  read_ = message.size();
  for (auto& stream : streams_) piece = text_of(stream.push(piece));
  return piece;
}

}  // namespace tandem::rollout
