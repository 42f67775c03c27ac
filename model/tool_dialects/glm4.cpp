// <tool_call>NAME <arg_key>KEY</arg_key> <arg_value>VALUE</arg_value> .. </tool_call>: GLM-4.5. Values are texts as
// they stand, or JSON.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "model/tool_dialects/dialects.h"
#include "model/tool_dialects/marks.h"

namespace tandem::model {

namespace {

constexpr std::string_view kOpen = kToolCall, kClose = kToolCallEnd;

// What stands between two tags at the start of `text`, which is moved behind them.
Result<std::string_view> take(std::string_view& text, std::string_view open, std::string_view close) {
  text = text.substr(std::min(text.size(), text.find_first_not_of(" \t\r\n")));
  if (!text.starts_with(open)) return fail(Status::invalid(fmt::format("{} was expected", open)));
  const size_t end = text.find(close, open.size());
  if (end == std::string_view::npos) return fail(Status::invalid(fmt::format("{} has no closing {}", open, close)));
  const auto inside = text.substr(open.size(), end - open.size());
  text.remove_prefix(end + close.size());
  return inside;
}

// The call behind its opening tag; `text` is moved behind the closing one.
Result<ToolCall> read_glm4_call(std::string_view& text) {
  const size_t name_end = std::min({text.size(), text.find('\n'), text.find("<arg_key>"), text.find(kClose)});
  ToolCall call{.name = std::string(trim(text.substr(0, name_end)))};
  text.remove_prefix(name_end);
  if (call.name.empty() || call.name.find('<') != std::string::npos)
    return fail(Status::invalid("the call has no name"));
  for (;;) {
    text = text.substr(std::min(text.size(), text.find_first_not_of(" \t\r\n")));
    if (text.starts_with(kClose)) {
      text.remove_prefix(kClose.size());
      return call;
    }
    if (text.empty()) return fail(Status::invalid("it has no closing </tool_call>"));
    const std::string key(trim(TRY(take(text, "<arg_key>", "</arg_key>"))));
    if (call.arguments.contains(key))
      return fail(Status::invalid(fmt::format("the argument \"{}\" stands twice", key)));
    call.arguments[key] = std::string(TRY(take(text, "<arg_value>", "</arg_value>")));
  }
}

}  // namespace

ParsedMessage parse_glm4(std::string_view text) {
  Collector collector(text);
  for (size_t begin = text.find(kOpen); begin != std::string_view::npos;) {
    std::string_view rest = text.substr(begin + kOpen.size());
    auto call = read_glm4_call(rest);
    size_t end = text.size() - rest.size();
    if (!call) end = std::min(text.size(), text.find(kClose, end));
    if (!call && end < text.size()) end += kClose.size();
    collector.add(std::move(call), begin, end);
    begin = text.find(kOpen, end);
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
