// DeepSeek: of V3 a kind, a name and fenced JSON, of V3.1 a name and JSON, between marks.
#include <fmt/format.h>

#include "base/text.h"
#include "model/tool_dialects/dialects.h"
#include "model/tool_dialects/marks.h"

namespace tandem::model {
namespace {

constexpr const CallMarks& kMarks = kDeepseekMarks;
constexpr std::string_view kFence = "```json", kFenceEnd = "```";

Result<ToolCall> read_deepseek_call(std::string_view head, std::string_view body) {
  std::string_view name = trim(head);
  body = trim(body);
  if (const size_t fence = body.find(kFence); name == "function" && fence != std::string_view::npos) {
    name = trim(body.substr(0, fence));
    body = trim(body.substr(fence + kFence.size()));
    if (!body.ends_with(kFenceEnd)) return fail(Status::invalid("the JSON has no closing ```"));
    body.remove_suffix(kFenceEnd.size());
  }
  name = unquoted(name);
  if (name.empty()) return fail(Status::invalid("the call has no name"));
  auto json = parse_json(trim(body));
  if (!json) return fail(Status::invalid(fmt::format("the JSON of the call is wrong: {}", json.error().message())));
  auto arguments = TRY(read_arguments(std::move(*json), "what follows the name"));
  return ToolCall{.name = std::string(name), .arguments = std::move(arguments)};
}

std::string between_marks(const std::string& call) {
  return fmt::format("{}{}{}{}{}", kMarks.list_begin, kMarks.begin, call, kMarks.end, kMarks.list_end);
}

}  // namespace

ParsedMessage parse_deepseek(std::string_view text, const Offered&) {
  return parse_marked_calls(text, kMarks, read_deepseek_call);
}

std::string format_deepseek_v3(std::string_view name, const Json& arguments) {
  return between_marks(
      fmt::format("function{}{}\n{}\n{}\n{}", kMarks.middle, name, kFence, dump_json(arguments), kFenceEnd));
}

std::string format_deepseek_v31(std::string_view name, const Json& arguments) {
  return between_marks(fmt::format("{}{}{}", name, kMarks.middle, dump_json(arguments)));
}

}  // namespace tandem::model
