// Mistral, behind [TOOL_CALLS]: a list of {"name": .., "arguments": {..}}, or NAME[ARGS]{..}, the mark before each of
// them, with [CALL_ID] and an id before the arguments in some versions.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "model/tool_dialects/dialects.h"
#include "model/tool_dialects/marks.h"

namespace tandem::model {

namespace {

constexpr auto kMistralNone = std::string_view::npos;

// One call or a list, of which the first takes the mark.
void read_mistral_list(std::string_view json, size_t begin, size_t end, Collector& collector) {
  const auto list = json.starts_with('[') ? parse_json(json) : fail(Status::invalid("no list"));
  if (!list || !list->is_array() || list->empty()) return collector.add(read_call(json, {"arguments"}), begin, end);
  for (size_t i = 0; i < list->size(); ++i)
    collector.add(read_call((*list)[i], {"arguments"}), i == 0 ? begin : end, end);
}

// `head`: what stands before the arguments.
Result<ToolCall> read_mistral_call(std::string_view head, std::string_view json) {
  head = head.substr(0, head.find(kMistralArguments));
  const size_t id = head.find(kMistralId);
  const auto name = unquoted(head.substr(0, id));
  if (name.empty()) return fail(Status::invalid("the call has no name"));
  auto arguments = parse_json(json);
  if (!arguments)
    return fail(Status::invalid(fmt::format("the JSON of the call is wrong: {}", arguments.error().message())));
  ToolCall call{.name = std::string(name)};
  if (id != kMistralNone) call.id = std::string(trim(head.substr(id + kMistralId.size())));
  call.arguments = TRY(read_arguments(std::move(*arguments), "what follows the name"));
  return call;
}

}  // namespace

ParsedMessage parse_mistral(std::string_view text, const Offered& offered) {
  Collector collector(text);
  for (size_t from = 0;;) {
    const size_t begin = std::min(text.find(kMistralCalls, from), text.find(kMistralArguments, from));
    if (begin == kMistralNone) break;
    if (mistral_mark_at(text, begin, *offered, true) != CallMark::kCall) {
      from = begin + 1;
      continue;
    }
    if (text.substr(begin).starts_with(kMistralArguments)) {
      from = std::min(end_of_json(text, text.find('{', begin)), text.size());
      collector.add(fail(Status::invalid("it has no [TOOL_CALLS] before it")), begin, from);
      continue;
    }
    const size_t inner = begin + kMistralCalls.size(), next = std::min(text.find(kMistralCalls, inner), text.size());
    // The name has no bracket of JSON in it; "[ARGS]" and "[CALL_ID]" are none.
    const MistralBody body = mistral_body(text, inner, true);
    const size_t end = body.json < next ? end_of_json(text, body.json) : kMistralNone;
    if (body.json >= next || end == kMistralNone) {
      const char* what = body.json >= next ? "there is neither a list of calls nor NAME[ARGS]{..} behind [TOOL_CALLS]"
                                           : "its JSON has no end";
      const size_t to = body.json >= next ? next : text.size();
      collector.add(fail(Status::invalid(what)), begin, to);
      from = to;
      continue;
    }
    const auto json = text.substr(body.json, end - body.json);
    const auto head = trim(text.substr(inner, body.json - inner));
    if (head.empty())
      read_mistral_list(json, begin, end, collector);
    else
      collector.add(read_mistral_call(head, json), begin, end);
    from = end;
  }
  return collector.finish();
}

CallMark mistral_mark_at(std::string_view text, size_t at, const OfferedTools& offered, bool whole) {
  if (text.substr(at).starts_with(kMistralCalls)) return CallMark::kCall;
  if (!offered.known()) return CallMark::kText;
  const size_t behind = text.find_first_not_of(" \t\r\n", at + kMistralArguments.size());
  if (behind == kMistralNone) return whole ? CallMark::kText : CallMark::kUndecided;
  return text[behind] == '{' ? CallMark::kCall : CallMark::kText;
}

MistralBody mistral_body(std::string_view text, size_t inner, bool whole) {
  for (size_t at = inner; at < text.size(); ++at) {
    if (text[at] == '{') return {.json = at};
    if (text[at] != '[') continue;
    const auto rest = text.substr(at);
    bool mark = false;
    for (const auto known : {kMistralArguments, kMistralId, kMistralCalls}) {
      if (!whole && rest.size() < known.size() && known.starts_with(rest)) return {.undecided = true};
      if (!rest.starts_with(known)) continue;
      if (known == kMistralCalls) return {};
      at += known.size() - 1;
      mark = true;
      break;
    }
    if (!mark) return {.json = at};
  }
  return {.undecided = !whole};
}

std::string format_mistral(std::string_view name, const Json& arguments) {
  return fmt::format("{}{}", kMistralCalls, dump_json(Json::array({{{"name", name}, {"arguments", arguments}}})));
}

std::string format_mistral_v11(std::string_view name, const Json& arguments) {
  return fmt::format("{}{}{}{}", kMistralCalls, name, kMistralArguments, dump_json(arguments));
}

}  // namespace tandem::model
