// ATIF (Agent Trajectory Interchange Format) as messages: a step of the agent is an assistant's message, and what it
// observed are the messages of its tools.
#include <fmt/format.h>

#include "base/text.h"
#include "trainer/sft/transcript.h"

namespace tandem::trainer {

namespace {

// Texts as they are; parts of text in OpenAI's notation, which ATIF shares.
Json content_of(const Json& step, const char* key) {
  const auto found = step.find(key);
  return found == step.end() || found->is_null() ? Json("") : *found;
}

Status add_agent(const Json& step, Json& messages) {
  Json message = {{"role", "assistant"}, {"content", content_of(step, "message")}};
  if (const Json thought = step.value("reasoning_content", Json()); !thought.is_null() && thought != "") {
    if (!thought.is_string()) return Status::invalid("reasoning_content is not a text");
    message["reasoning_content"] = thought;
  }
  const Json calls = step.value("tool_calls", Json());
  if (!calls.is_null() && !calls.is_array()) return Status::invalid("tool_calls is not a list");
  for (const Json& call : calls) {
    if (!call.is_object() || !call.contains("function_name"))
      return Status::invalid("a tool call has no function_name");
    message["tool_calls"].push_back(
        {{"id", call.value("tool_call_id", Json())},
         {"type", "function"},
         {"function", {{"name", call["function_name"]}, {"arguments", call.value("arguments", Json())}}}});
  }
  messages.push_back(std::move(message));
  const Json observation = step.value("observation", Json());
  if (observation.is_null()) return {};
  const Json results = observation.is_object() ? observation.value("results", Json()) : Json();
  if (!results.is_array()) return Status::invalid("observation has no list of results");
  for (const Json& result : results) {
    if (!result.is_object()) return Status::invalid("a result of observation is not an object");
    Json reply = {{"role", "tool"}, {"content", content_of(result, "content")}};
    if (const Json id = result.value("source_call_id", Json()); !id.is_null()) reply["tool_call_id"] = id;
    messages.push_back(std::move(reply));
  }
  return {};
}

}  // namespace

Result<Chat> read_atif(const Json& json) {
  const Json version = json.value("schema_version", Json());
  if (!version.is_string() || !version.get_ref<const std::string&>().starts_with("ATIF-v1.")) {
    return fail(Status::invalid(
        fmt::format("schema_version is {}, not one of ATIF-v1 such as \"ATIF-v1.7\"", dump_json(version))));
  }
  const auto steps = json.find("steps");
  if (steps == json.end() || !steps->is_array() || steps->empty())
    return fail(Status::invalid("steps is not a list with at least one step"));
  Json messages = Json::array();
  for (size_t i = 0; i < steps->size(); ++i) {
    const Json& step = (*steps)[i];
    const std::string place = fmt::format("steps[{}]", i);
    if (!step.is_object()) return fail(Status::invalid("is not an object").at(place));
    const Json source = step.value("source", Json());
    if (source == "system" || source == "user") {
      messages.push_back({{"role", source}, {"content", content_of(step, "message")}});
    } else if (source == "agent") {
      if (Status status = add_agent(step, messages); !status.ok()) return fail(std::move(status).at(place));
    } else {
      return fail(Status::invalid(fmt::format("source is {}, not system, user or agent", dump_json(source))).at(place));
    }
  }
  Json chat = {{"messages", std::move(messages)}};
  const Json agent = json.value("agent", Json());
  if (agent.is_object()) chat["tools"] = agent.value("tool_definitions", Json());
  return read_chat(chat);
}

}  // namespace tandem::trainer
