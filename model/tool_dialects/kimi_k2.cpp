// Kimi-K2: an id "functions.NAME:NUMBER" and JSON between marks.
#include <fmt/format.h>

#include "base/text.h"
#include "model/tool_dialects/dialects.h"
#include "model/tool_dialects/marks.h"

namespace tandem::model {
namespace {

constexpr const CallMarks& kKimiK2Marks = kKimiMarks;
constexpr std::string_view kSpace = "functions.";

Result<ToolCall> read_kimi_call(std::string_view head, std::string_view body) {
  const std::string_view id = trim(head);
  std::string_view name = id.substr(0, id.rfind(':'));
  if (name.starts_with(kSpace)) name.remove_prefix(kSpace.size());
  if (name.empty()) return fail(Status::invalid("the call's id is not functions.NAME:NUMBER"));
  auto json = parse_json(trim(body));
  if (!json) return fail(Status::invalid(fmt::format("the JSON of the call is wrong: {}", json.error().message())));
  auto arguments = TRY(read_arguments(std::move(*json), "what follows the id"));
  return ToolCall{.id = std::string(id), .name = std::string(name), .arguments = std::move(arguments)};
}

}  // namespace

ParsedMessage parse_kimi_k2(std::string_view text) { return parse_marked_calls(text, kKimiK2Marks, read_kimi_call); }

std::string format_kimi_k2(std::string_view name, const Json& arguments) {
  return fmt::format("{}{}{}{}:0{}{}{}{}", kKimiK2Marks.list_begin, kKimiK2Marks.begin, kSpace, name,
                     kKimiK2Marks.middle, dump_json(arguments), kKimiK2Marks.end, kKimiK2Marks.list_end);
}

}  // namespace tandem::model
