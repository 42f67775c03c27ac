// Output of Llama 3.1 and later after <|python_tag|> that is not JSON: NAME.call(key=value, ..) for a built-in tool, or
// code for the interpreter (Llama's model card; llama-stack reads both so).
#pragma once

#include <string>
#include <string_view>

#include "model/tool_dialect.h"

namespace tandem::model {

// The tool that code is meant for, and its one argument.
inline constexpr std::string_view kCodeTool = "code_interpreter";
inline constexpr std::string_view kCodeArgument = "code";

enum class PythonForm : uint8_t {
  kUndecided,  // what comes next decides
  kCall,       // NAME.call( with a keyword and = or a closing bracket behind it
  kCode,       // all else
};
// A text without white space at its beginning. It is decided within a few kilobytes. `whole`: nothing comes next.
struct PythonStart {
  PythonForm form = PythonForm::kUndecided;
  std::string_view name;  // of a call
};
PythonStart start_of_python(std::string_view text, bool whole);

// One of Python's literals and nothing else, as the values of calls are.
Result<Json> read_python_literal(std::string_view text);

// The call that begins at `at`, where its form is kCall; `at` is its end then. Values are Python's literals: texts,
// numbers, True, False, None, and lists, tuples and dictionaries of them.
Result<ToolCall> read_python_call(std::string_view text, size_t& at);

}  // namespace tandem::model
