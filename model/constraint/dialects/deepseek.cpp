// DeepSeek: of V3 a kind, a name and fenced JSON, of V3.1 a name and JSON, between marks.
#include "model/constraint/dialects/call_parts.h"
#include "model/tool_dialects/marks.h"

namespace tandem::model::constraint {

namespace {

constexpr auto kGuard = static_cast<uint8_t>(kDeepseekMarks.begin[1]);

}  // namespace

Result<Grammar> deepseek_v3_calls(const CallsAsked& asked) {
  return marked_calls(
      ToolDialect::kDeepseekV3,
      {.marks = kDeepseekMarks, .head = "function", .behind = "{}\n```json\n", .tail = "```", .guard = kGuard}, asked);
}

Result<Grammar> deepseek_v31_calls(const CallsAsked& asked) {
  return marked_calls(ToolDialect::kDeepseekV31, {.marks = kDeepseekMarks, .head = "{}", .guard = kGuard}, asked);
}

}  // namespace tandem::model::constraint
