// {"name": .., "parameters": {..}} as the whole message, behind <|python_tag|> or not; several with ; between: Llama 3.
#include <fmt/format.h>

#include "base/text.h"
#include "model/tool_dialects/dialects.h"
#include "model/tool_dialects/parts.h"

namespace tandem::model {

namespace {
constexpr std::string_view kPythonTag = "<|python_tag|>";
}

ParsedMessage parse_llama3(std::string_view text) {
  Collector collector(text);
  size_t at = text.find(kPythonTag);
  const size_t whole_begin = at == std::string_view::npos ? text.find_first_not_of(" \t\r\n") : at;
  size_t begin = whole_begin;
  if (at != std::string_view::npos) {
    at += kPythonTag.size();
  } else if (whole_begin != std::string_view::npos && text[whole_begin] == '{') {
    at = whole_begin;
  } else {
    return collector.finish();
  }
  for (;;) {
    at = text.find_first_not_of(" \t\r\n;", at);
    if (at == std::string_view::npos) break;
    const size_t end = text[at] == '{' ? end_of_json(text, at) : std::string_view::npos;
    if (end == std::string_view::npos) {
      collector.add(fail(Status::invalid("it is not a whole JSON object")), begin, text.size());
      break;
    }
    collector.add(read_call(text.substr(at, end - at), {"parameters", "arguments"}), begin, end);
    at = begin = end;
  }
  return collector.finish();
}

std::string format_llama3(std::string_view name, const Json& arguments) {
  return dump_json(Json{{"name", name}, {"parameters", arguments}});
}

}  // namespace tandem::model
