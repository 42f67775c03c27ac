#include "rollout/agent/chat_messages.h"

#include <fmt/format.h>

#include "rollout/agent/text_calls.h"

namespace tandem::rollout {

namespace {

Json one_user_message(std::string content) {
  Json messages = Json::array();
  messages.push_back({{"role", "user"}, {"content", std::move(content)}});
  return messages;
}

}  // namespace

std::string id_of(const envs::ParsedCall& call, size_t number, const CallNotation& notation) {
  if (!call.id.empty()) return call.id;
  if (notation.dialect == model::ToolDialect::kKimiK2) return fmt::format("functions.{}:{}", call.call.name, number);
  return fmt::format("call{:05}", number + 1);  // nine letters and digits, as Mistral's templates want
}

Json message_of(const envs::Message& message) { return {{"role", message.role}, {"content", message.content}}; }

Json message_of(const Said& said, const CallNotation& notation) {
  Json message = {{"role", "assistant"}, {"content", said.text}};
  if (!said.reasoning.empty()) message["reasoning_content"] = said.reasoning;
  if (said.calls.empty()) return message;
  if (notation.listing == envs::ToolListing::kInMessages) {
    std::vector<envs::Call> calls;
    for (const auto& parsed : said.calls) calls.push_back(parsed.call);
    message["content"] = said.text + (said.text.empty() ? "" : "\n") + write_calls(calls);
    return message;
  }
  for (size_t i = 0; i < said.calls.size() && (i == 0 || !notation.one_call); ++i) {
    const auto& [call, error, id] = said.calls[i];
    const Json arguments = error.empty() ? call.arguments : Json::object();
    message["tool_calls"].push_back(
        {{"id", id_of(said.calls[i], i, notation)},
         {"type", "function"},
         {"function",
          {{"name", error.empty() ? call.name : "unreadable"},
           {"arguments", notation.arguments_as_text ? Json(python_json(arguments)) : arguments}}}});
  }
  return message;
}

Json messages_of(const Said& said, const Reply& reply, const CallNotation& notation) {
  if (said.calls.empty()) return one_user_message(reply.instruction);
  if (notation.listing == envs::ToolListing::kInMessages) {
    const auto results = write_results(reply.results);
    return one_user_message(reply.instruction.empty() ? results : results + "\n\n" + reply.instruction);
  }
  Json messages = Json::array();
  for (size_t i = 0; i < reply.results.size() && i < said.calls.size(); ++i) {
    messages.push_back({{"role", "tool"},
                        {"tool_call_id", id_of(said.calls[i], i, notation)},
                        {"name", said.calls[i].error.empty() ? said.calls[i].call.name : "unreadable"},
                        {"content", reply.results[i]}});
  }
  if (!reply.instruction.empty()) messages.push_back({{"role", "user"}, {"content", reply.instruction}});
  return messages;
}

}  // namespace tandem::rollout
