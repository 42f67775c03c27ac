// {"name": .., "parameters": {..}} as the whole message, or behind <|python_tag|>; several with ; between: Llama 3.
// NAME.call(key=value) stands for one of them, and behind the tag all else is code for an interpreter.
#include <algorithm>

#include "base/text.h"
#include "model/tool_dialects/dialects.h"
#include "model/tool_dialects/llama3_start.h"
#include "model/tool_dialects/marks.h"
#include "model/tool_dialects/python_call.h"

namespace tandem::model {

bool skip_to_llama_call(std::string_view text, size_t& at) {
  bool behind_tag = false;
  for (;;) {
    at = std::min(text.find_first_not_of(" \t\r\n;", at), text.size());
    if (!text.substr(at).starts_with(kPythonTag)) return behind_tag;
    behind_tag = true;
    at += kPythonTag.size();
  }
}

namespace {

// Calls from `begin` on.
ParsedMessage read_llama_calls(std::string_view text, size_t begin) {
  Collector collector(text);
  for (size_t at = begin; at < text.size();) {
    const bool behind_tag = skip_to_llama_call(text, at);
    if (at == text.size()) break;
    const std::string_view rest = text.substr(at);
    size_t end = text.size();
    if (rest[0] == '{') {
      end = end_of_json(text, at);
      if (end == std::string_view::npos) {
        collector.add(fail(Status::invalid("it is not a whole JSON object")), begin, text.size());
        break;
      }
      collector.add(read_call(text.substr(at, end - at), {"parameters", "arguments"}), begin, end);
    } else if (start_of_python(rest, true).form == PythonForm::kCall) {
      end = at;
      auto call = read_python_call(text, end);
      if (!call) end = text.size();
      collector.add(std::move(call), begin, end);
    } else if (behind_tag) {
      collector.add(ToolCall{.name = std::string(kCodeTool), .arguments = Json{{kCodeArgument, trim(rest)}}}, begin,
                    end);
    } else {
      collector.add(fail(Status::invalid("it is neither a JSON object nor NAME.call(key=value)")), begin, end);
    }
    at = begin = end;
  }
  return collector.finish();
}

}  // namespace

ParsedMessage parse_more_llama3(std::string_view text) { return read_llama_calls(text, 0); }

ParsedMessage parse_llama3(std::string_view text, const Offered& offered) {
  // A text that begins with a call is calls from there on, whatever tags stand in their strings.
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin != std::string_view::npos && text[begin] == '{') {
    ObjectWatch object(begin);
    object.advance(text);
    if (form_of_brace(object, text, *offered, true) == BraceForm::kCall) return read_llama_calls(text, begin);
  }
  return read_llama_calls(text, text.find(kPythonTag));
}

std::string format_llama3(std::string_view name, const Json& arguments) {
  return dump_json(Json{{"name", name}, {"parameters", arguments}});
}

}  // namespace tandem::model
