// Kimi-K2: an id "functions.NAME:NUMBER", or one of another shape with the name in it, and JSON between marks.
#include <fmt/format.h>

#include "base/text.h"
#include "model/tool_dialects/dialects.h"
#include "model/tool_dialects/kimi_id.h"
#include "model/tool_dialects/marks.h"

namespace tandem::model {
namespace {

constexpr const CallMarks& kKimiK2Marks = kKimiMarks;
constexpr std::string_view kSpace = "functions.";

Result<ToolCall> read_kimi_call(std::string_view head, std::string_view body, const OfferedTools& offered) {
  const std::string_view id = trim(head);
  const auto name = name_of_kimi_id(id, offered);
  if (!name) {
    const std::string tools = offered.known() ? fmt::format(" with NAME one of {}", offered.names()) : "";
    return fail(
        Status::invalid(fmt::format("the call's id \"{}\" is not functions.NAME:NUMBER{}", id.substr(0, 100), tools)));
  }
  auto json = parse_json(trim(body));
  if (!json) return fail(Status::invalid(fmt::format("the JSON of the call is wrong: {}", json.error().message())));
  auto arguments = TRY(read_arguments(std::move(*json), "what follows the id"));
  return ToolCall{.id = std::string(id), .name = *name, .arguments = std::move(arguments)};
}

}  // namespace

ParsedMessage parse_kimi_k2(std::string_view text, const Offered& offered) {
  return parse_marked_calls(text, kKimiK2Marks, [&](std::string_view head, std::string_view body) {
    return read_kimi_call(head, body, *offered);
  });
}

std::string format_kimi_k2(std::string_view name, const Json& arguments) {
  return fmt::format("{}{}{}{}:0{}{}{}{}", kKimiK2Marks.list_begin, kKimiK2Marks.begin, kSpace, name,
                     kKimiK2Marks.middle, dump_json(arguments), kKimiK2Marks.end, kKimiK2Marks.list_end);
}

}  // namespace tandem::model
