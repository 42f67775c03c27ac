// {"name": .., "parameters": {..}} as the whole message, behind <|python_tag|> or not; several with ; between: Llama 3.
#include <fmt/format.h>

#include "base/text.h"
#include "model/tool_dialects/dialects.h"
#include "model/tool_dialects/marks.h"

namespace tandem::model {

ParsedMessage parse_llama3(std::string_view text) {
  Collector collector(text);
  // A text that begins with a brace is calls from there on, whatever tags stand in their strings.
  size_t begin = text.find_first_not_of(" \t\r\n"), at = begin;
  if (begin == std::string_view::npos) return collector.finish();
  if (text[begin] != '{') {
    begin = text.find(kPythonTag);
    if (begin == std::string_view::npos) return collector.finish();
    at = begin + kPythonTag.size();
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
