// Kimi-K2: an id "functions.NAME:NUMBER" and JSON between marks.
#include "model/constraint/dialects/call_parts.h"
#include "model/tool_dialects/marks.h"

namespace tandem::model::constraint {

Result<Grammar> kimi_k2_calls(const CallsAsked& asked) {
  return marked_calls(
      ToolDialect::kKimiK2,
      {.marks = kKimiMarks, .head = "functions.{}:", .numbered = true, .guard = static_cast<uint8_t>('|')}, asked);
}

}  // namespace tandem::model::constraint
