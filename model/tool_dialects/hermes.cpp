// <tool_call>{"name": .., "arguments": {..}}</tool_call>: Hermes, Qwen2.5, Qwen3; with a list of such objects inside of
// one pair of tags, SmolLM2.
#include <fmt/format.h>

#include "base/text.h"
#include "model/tool_dialects/dialects.h"
#include "model/tool_dialects/marks.h"

namespace tandem::model {

namespace {

constexpr std::string_view kHermesOpen = kToolCall, kHermesClose = kToolCallEnd;

// What stands between two tags: one call, or a list of them, of which the first takes the tags.
void read_calls(std::string_view inside, size_t begin, size_t end, Collector& collector) {
  const auto list = inside.starts_with('[') ? parse_json(inside) : fail(Status::invalid("no list"));
  if (!list || !list->is_array() || list->empty()) return collector.add(read_call(inside, {"arguments"}), begin, end);
  for (size_t i = 0; i < list->size(); ++i)
    collector.add(read_call((*list)[i], {"arguments"}), i == 0 ? begin : end, end);
}

}  // namespace

bool closes_no_hermes_call(std::string_view text, size_t from, size_t at) {
  return trim(text.substr(from, at - from)).ends_with('}');
}

ParsedMessage parse_hermes(std::string_view text, const Offered&) {
  Collector collector(text);
  size_t from = 0;
  for (size_t search = 0;;) {
    const size_t begin = text.find(kHermesOpen, search), stray = text.find(kHermesClose, search);
    if (begin == std::string_view::npos && stray == std::string_view::npos) break;
    if (stray < begin) {
      search = stray + kHermesClose.size();
      if (!closes_no_hermes_call(text, from, stray)) continue;
      from = search;
      collector.add(fail(Status::invalid("it has no <tool_call> before it")), stray, from);
      continue;
    }
    const size_t inner = begin + kHermesOpen.size();
    // The tag may stand inside of a string of the JSON, so that says first where the call ends.
    const size_t brace = text.find_first_not_of(" \t\r\n", inner);
    search = inner;
    if (brace != std::string_view::npos && (text[brace] == '{' || text[brace] == '[')) {
      const size_t object_end = end_of_json(text, brace);
      const size_t close =
          object_end == std::string_view::npos ? object_end : text.find_first_not_of(" \t\r\n", object_end);
      if (close != std::string_view::npos && text.substr(close).starts_with(kHermesClose)) search = close;
      if (close != std::string_view::npos && text.substr(close).starts_with(kHermesOpen)) {
        collector.add(fail(Status::invalid("it has no closing </tool_call>")), begin, close);
        search = from = close;
        continue;
      }
    }
    const size_t close = text.find(kHermesClose, search);
    if (close == std::string_view::npos) {
      collector.add(fail(Status::invalid("it has no closing </tool_call>")), begin, text.size());
      break;
    }
    search = from = close + kHermesClose.size();
    read_calls(trim(text.substr(inner, close - inner)), begin, from, collector);
  }
  return collector.finish();
}

std::string format_hermes(std::string_view name, const Json& arguments) {
  return fmt::format("{}\n{}\n{}", kHermesOpen, dump_json(Json{{"name", name}, {"arguments", arguments}}),
                     kHermesClose);
}

}  // namespace tandem::model
