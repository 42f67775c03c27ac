#include "cli/model/message_json.h"

#include <fmt/format.h>

namespace tandem::cli {

Json message_json(const model::ParsedMessage& parsed) {
  Json message = {{"role", "assistant"}, {"content", parsed.content}};
  if (!parsed.reasoning.empty()) {
    message["reasoning"] = parsed.reasoning;
    message["reasoning_content"] = parsed.reasoning;
  }
  for (const auto& call : parsed.calls) {
    message["tool_calls"].push_back(
        {{"id", call.id.empty() ? fmt::format("call_{}", message["tool_calls"].size()) : call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", dump_json(call.arguments)}}}});
  }
  return message;
}

}  // namespace tandem::cli
