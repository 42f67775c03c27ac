#include "model/message_format.h"

#include <algorithm>
#include <iterator>

#include "model/chat_template.h"
#include "model/tokenizer.h"

namespace tandem::model {

namespace {

constexpr std::string_view kMessageSpace = " \t\r\n";

// Without tools there is nothing to call.
bool looks_for_calls(const Json& tools) { return !tools.is_array() || !tools.empty(); }

void give_types_of_dialect(ToolDialect dialect, const Json& tools, std::vector<ToolCall>& calls) {
  if (has_text_values(dialect)) give_types(tools, calls);
}

void move_places(ParsedMessage& message, size_t by) {
  for (ToolCall& call : message.calls) {
    call.begin += by;
    call.end += by;
  }
  for (ToolCallError& error : message.errors) {
    error.begin += by;
    error.end += by;
  }
}

}  // namespace

MessageFormat message_format(const ChatTemplate& chat_template, bool with_tools, std::string_view prompt,
                             const Tokenizer* tokenizer) {
  const std::string& source = chat_template.source(with_tools);
  const auto writes = [&](std::string_view part) { return source.find(part) != std::string::npos; };
  const auto end = prompt.substr(0, prompt.find_last_not_of(kMessageSpace) + 1);
  return {.dialect = dialect_of_template(source),
          .reads_tools = writes("tools"),
          .has_reasoning = std::any_of(kReasoningMarks.begin(), kReasoningMarks.end(),
                                       [&](const ReasoningMarks& marks) {
                                         return writes(marks.end) ||
                                                (tokenizer != nullptr && tokenizer->find(marks.end));
                                       }),
          .begins_in_reasoning = end.ends_with(kReasoningBegin)};
}

ParsedMessage parse_message(const MessageFormat& format, std::string_view text, const Json& tools) {
  auto parts = ReasoningSplitter(format.begins_in_reasoning).push(text, true);
  ParsedMessage message;
  if (looks_for_calls(tools)) {
    message = parse_tool_calls(format.dialect, parts.content, tools);
    give_types_of_dialect(format.dialect, tools, message.calls);
    message.content.erase(0, std::min(message.content.find_first_not_of(kMessageSpace), message.content.size()));
    move_places(message, text.size() - parts.content.size());
  } else {
    message.content = std::move(parts.content);
  }
  message.reasoning = std::move(parts.reasoning);
  return message;
}

bool ends_reasoning_of_prompt(ToolDialect dialect, std::string_view text, const Json& tools) {
  const size_t end = text.find(kReasoningEnd);
  if (end == std::string_view::npos || text.find(kReasoningBegin) < end) return false;
  if (!looks_for_calls(tools)) return true;
  const auto parsed = parse_tool_calls(dialect, text, tools);
  return std::none_of(parsed.calls.begin(), parsed.calls.end(),
                      [&](const ToolCall& call) { return call.begin < end && end < call.end; });
}

MessageStream::MessageStream(const MessageFormat& format, Json tools)
    : splitter_(format.begins_in_reasoning), tools_(std::move(tools)) {
  if (!looks_for_calls(tools_)) return;
  calls_.emplace(format.dialect, tools_);
  types_come_late_ = has_text_values(format.dialect);
}

MessageStream::Parts MessageStream::take(std::string_view piece, bool last) {
  size_ += piece.size();
  auto [reasoning, content] = splitter_.push(piece, last);
  content_size_ += content.size();
  message_.reasoning += reasoning;
  Parts parts{.reasoning = std::move(reasoning), .events = {}};
  if (!calls_) {
    message_.content += content;
    if (!content.empty()) parts.events.push_back({.kind = ToolEvent::kText, .text = std::move(content)});
    return parts;
  }
  auto events = calls_->push(content);
  if (last) {
    auto rest = calls_->finish();
    std::move(rest.begin(), rest.end(), std::back_inserter(events));
  }
  // Where the content begins: behind all that came before its first byte.
  const size_t begin = size_ - content_size_;
  for (ToolEvent& event : events) {
    if (event.kind == ToolEvent::kArguments && types_come_late_) continue;
    if (event.kind == ToolEvent::kError) {
      event.error.begin += begin;
      event.error.end += begin;
    }
    if (event.kind == ToolEvent::kCallEnded) {
      event.call.begin += begin;
      event.call.end += begin;
      if (types_come_late_) {
        std::vector<ToolCall> typed = {std::move(event.call)};
        give_types(tools_, typed);
        event.call = std::move(typed[0]);
        parts.events.push_back(
            {.kind = ToolEvent::kArguments, .number = event.number, .text = dump_json(event.call.arguments)});
      }
    }
    if (event.kind == ToolEvent::kText) message_.content += event.text;
    parts.events.push_back(std::move(event));
  }
  if (last) {
    ParsedMessage whole = calls_->message();
    whole.reasoning = std::move(message_.reasoning);
    whole.content = std::move(message_.content);
    message_ = std::move(whole);
    if (types_come_late_) give_types(tools_, message_.calls);
    move_places(message_, begin);
  }
  return parts;
}

}  // namespace tandem::model
