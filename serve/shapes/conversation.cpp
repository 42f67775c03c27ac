#include "serve/shapes/conversation.h"

#include <fmt/format.h>

#include <algorithm>

#include "serve/endpoints.h"

namespace tandem::serve {
namespace {

bool asks_for_format(const Json& format) {
  return format.is_object() && format.value("type", Json("text")) != Json("text");
}

// Arguments that are valid by construction, where a tool says "strict".
bool is_strict(const Json& tools) {
  return std::any_of(tools.begin(), tools.end(),
                     [](const Json& tool) { return tool["function"].value("strict", Json(false)) == Json(true); });
}

Status constrain(Fields& fields, const ModelView& model, const Conversation& asked,
                 std::optional<model::ToolDialect> dialect, Generation& generation) {
  Json request = Json::object();
  std::string_view param = "response_format";
  if (asks_for_format(asked.response_format)) request["response_format"] = asked.response_format;
  if (!asked.tool_choice.is_null() && !dialect)
    return fields.wrong("tool_choice", "\"tool_choice\" goes with \"tools\"");
  if (dialect && (!asked.tool_choice.is_null() || is_strict(asked.tools))) {
    request["tool_choice"] = asked.tool_choice.is_null() ? Json("auto") : asked.tool_choice;
    request["tools"] = asked.tools;
    if (asked.one_call) request["parallel_tool_calls"] = false;
    param = "tool_choice";
  }
  if (request.empty()) return {};
  if (!generation.choice->stops.empty()) request["stop"] = generation.choice->stops;
  auto constraint = model.constraints.of(request, dialect);
  if (!constraint) return fields.wrong(param, std::move(constraint).error());
  generation.turn.constraint = std::move(*constraint);
  // What a grammar begins with is the answer itself.
  if (request.contains("response_format")) generation.choice->tools = Json::array();
  const bool free_text = request.contains("tool_choice") && request["tool_choice"] == Json("auto");
  if (generation.turn.constraint && generation.choice->format && !free_text)
    generation.choice->format->begins_in_reasoning = false;
  return {};
}

}  // namespace

Status read_response_format(Fields& fields, const ModelView& model, Generation& generation) {
  const Json* const format = fields.get("response_format");
  if (format == nullptr) return {};
  return constrain(fields, model, {.response_format = *format}, std::nullopt, generation);
}

Status apply_conversation(Fields& fields, const ModelView& model, const Conversation& conversation,
                          Generation& generation) {
  if (!model.text.chat_template)
    return fields.wrong("messages", fmt::format("{} has no chat template: use /v1/completions", model.name));
  const bool offers = !conversation.tools.empty();
  model::RenderOptions options{
      .add_generation_prompt = conversation.add_generation_prompt && !conversation.continues,
      .continue_final_message = conversation.continues ? "content" : "",
      .variables = conversation.variables,
  };
  auto rendered = model.text.render(conversation.messages, offers ? conversation.tools : Json(), std::move(options));
  if (!rendered) return fields.wrong("messages", std::move(rendered).error());
  generation.prompts.push_back(std::move(rendered->ids));
  auto& settings = *generation.choice;
  settings.format = model.text.format(offers, rendered->text);
  settings.one_call = conversation.one_call;
  settings.tools = conversation.tools;
  return constrain(fields, model, conversation, offers ? std::optional(settings.format->dialect) : std::nullopt,
                   generation);
}

}  // namespace tandem::serve
