// Qwen3-Coder; the reader of a call says how it looks. Values are texts.
#include <fmt/format.h>

#include <algorithm>

#include "model/tool_dialects/dialects.h"
#include "model/tool_dialects/marks.h"
#include "model/tool_dialects/qwen3_coder_reader.h"

namespace tandem::model {

namespace {

constexpr std::string_view kQwenOpen = kToolCall, kQwenClose = kToolCallEnd;

}  // namespace

ParsedMessage parse_qwen3_coder(std::string_view text, const Offered& offered) {
  Collector collector(text);
  for (size_t from = 0;;) {
    const size_t begin =
        std::min({text.find(kQwenOpen, from), text.find(kCoderFunction, from), text.find(kCoderParameter, from)});
    if (begin == std::string_view::npos) break;
    if (coder_mark_at(text, begin, *offered, true) != CallMark::kCall) {
      from = begin + 1;
      continue;
    }
    CoderReader reader(offered);
    from = begin + *reader.read(text.substr(begin), true);
    collector.add(reader.take(), begin, from);
  }
  return collector.finish();
}

std::string format_qwen3_coder(std::string_view name, const Json& arguments) {
  std::string out = fmt::format("{}\n<function={}>\n", kQwenOpen, name);
  for (const auto& [key, value] : arguments.items())
    out += fmt::format("<parameter={}>\n{}\n</parameter>\n", key, value_as_text(value));
  return out + fmt::format("</function>\n{}", kQwenClose);
}

}  // namespace tandem::model
