// GLM-4.5; the reader of a call says how it looks. Values are texts as they stand, or JSON.
#include <fmt/format.h>

#include <algorithm>

#include "model/tool_dialects/dialects.h"
#include "model/tool_dialects/glm4_reader.h"
#include "model/tool_dialects/marks.h"

namespace tandem::model {

namespace {

constexpr std::string_view kOpen = kToolCall, kClose = kToolCallEnd;

}  // namespace

ParsedMessage parse_glm4(std::string_view text, const Offered& offered) {
  Collector collector(text);
  for (size_t from = 0;;) {
    const size_t begin = std::min({text.find(kOpen, from), text.find(kGlmKey, from), text.find(kGlmValueEnd, from)});
    if (begin == std::string_view::npos) break;
    if (glm_mark_at(text, begin, *offered, true) != CallMark::kCall) {
      from = begin + 1;
      continue;
    }
    GlmReader reader(offered);
    from = begin + *reader.read(text.substr(begin), true);
    collector.add(reader.take(), begin, from);
  }
  return collector.finish();
}

std::string format_glm4(std::string_view name, const Json& arguments) {
  std::string out = fmt::format("{}{}\n", kOpen, name);
  for (const auto& [key, value] : arguments.items())
    out += fmt::format("<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n", key, value_as_text(value));
  return out.append(kClose);
}

}  // namespace tandem::model
