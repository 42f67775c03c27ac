// Compiles `response_format` and `tool_choice` of a request to grammars.
//
// Pure functions; what they return is immutable and may be shared by any number of matchers.
#pragma once

#include <memory>

#include "base/json.h"
#include "model/constraint/grammar.h"
#include "model/tool_dialect.h"

namespace tandem::model::constraint {

// Values by a JSON Schema, with white space before them and none behind. Which keywords hold, and in which form values
// are written, is in docs/constrained.md. kInvalid names what is wrong or not implemented, and its place in the schema.
Result<std::shared_ptr<const Grammar>> schema_grammar(const Json& schema);

// OpenAI's `response_format`: of the types json_object and json_schema. Nothing for the type text.
Result<std::shared_ptr<const Grammar>> response_grammar(const Json& response_format);

// OpenAI's `tool_choice` over its `tools`: "none" (a text without calls), "auto" (a text, calls, or calls behind a
// text), "required" (calls alone), or one named function (one call of it). Calls are those of the dialect, their
// arguments valid by the tool's `parameters`; `calls` says how many there may be. kInvalid where a dialect cannot write
// a tool's name or arguments.
enum class Calls : uint8_t { kAny, kOne };
Result<std::shared_ptr<const Grammar>> tool_grammar(ToolDialect dialect, const Json& tools, const Json& tool_choice,
                                                    Calls calls = Calls::kAny);

}  // namespace tandem::model::constraint
