#include "envs/episodes/call_messages.h"

#include <fmt/format.h>

namespace tandem::envs {

void write_calls(std::span<const ParsedCall> calls, capnp::List<wire::ToolCall>::Builder out) {
  for (unsigned i = 0; i < out.size(); ++i) {
    out[i].setId(calls[i].id);
    out[i].setName(calls[i].call.name);
    // A call that could not be read is written as its error alone: the same after any number of hands.
    out[i].setArguments(calls[i].error.empty() ? dump_json(calls[i].call.arguments) : "{}");
    out[i].setError(calls[i].error);
  }
}

Result<std::vector<ParsedCall>> read_calls(capnp::List<wire::ToolCall>::Reader in) {
  if (in.size() > kMostCalls)
    return fail(Status::corrupt(fmt::format("a message has {} calls, at most {} can be", in.size(), kMostCalls)));
  std::vector<ParsedCall> calls;
  for (const auto each : in) {
    ParsedCall parsed{
        .call = {.name = each.getName(), .arguments = Json::object()}, .error = each.getError(), .id = each.getId()};
    if (parsed.error.empty()) {
      auto arguments = parse_json(std::string_view(each.getArguments().cStr(), each.getArguments().size()));
      if (!arguments || !arguments->is_object())
        return fail(Status::corrupt("the arguments of a call are not a JSON object"));
      parsed.call.arguments = std::move(*arguments);
    }
    calls.push_back(std::move(parsed));
  }
  return calls;
}

Result<Json> read_tools(std::string_view text) {
  if (text.empty()) return Json();
  auto tools = parse_json(text);
  if (!tools || !(tools->is_array() || tools->is_null())) return fail(Status::corrupt("tools are not a JSON array"));
  return std::move(*tools);
}

}  // namespace tandem::envs
