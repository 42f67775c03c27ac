// <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>: Qwen3-Coder. Values are texts.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "model/tool_dialects/dialects.h"
#include "model/tool_dialects/marks.h"

namespace tandem::model {

namespace {

constexpr std::string_view kQwenOpen = kToolCall, kQwenClose = kToolCallEnd;

// The inside of one <tool_call> of Qwen3-Coder. A value stands between line ends that are not part of it.
Result<ToolCall> read_coder_call(std::string_view text) {
  constexpr std::string_view kFunction = "<function=";
  constexpr std::string_view kParameter = "<parameter=";
  constexpr std::string_view kParameterEnd = "</parameter>";
  text = trim(text);
  if (!text.starts_with(kFunction)) return fail(Status::invalid("the call does not start with <function=NAME>"));
  if (!text.ends_with("</function>")) return fail(Status::invalid("the call does not end with </function>"));
  text.remove_suffix(std::string_view("</function>").size());
  const size_t name_end = text.find('>');
  if (name_end == std::string_view::npos) return fail(Status::invalid("<function= has no closing >"));
  ToolCall call{.name = std::string(trim(text.substr(kFunction.size(), name_end - kFunction.size())))};
  if (call.name.empty()) return fail(Status::invalid("the function has no name"));
  text.remove_prefix(name_end + 1);
  for (text = trim(text); !text.empty(); text = trim(text)) {
    const size_t key_end = text.find('>');
    if (!text.starts_with(kParameter) || key_end == std::string_view::npos) {
      return fail(Status::invalid("a <parameter=KEY> was expected"));
    }
    const std::string key(trim(text.substr(kParameter.size(), key_end - kParameter.size())));
    const size_t value_end = text.find(kParameterEnd, key_end);
    if (value_end == std::string_view::npos) {
      return fail(Status::invalid(fmt::format("the parameter \"{}\" has no closing </parameter>", key)));
    }
    std::string_view value = text.substr(key_end + 1, value_end - key_end - 1);
    if (value.starts_with('\n')) value.remove_prefix(1);
    if (value.ends_with('\n')) value.remove_suffix(1);
    if (call.arguments.contains(key))
      return fail(Status::invalid(fmt::format("the parameter \"{}\" stands twice", key)));
    call.arguments[key] = std::string(value);
    text.remove_prefix(value_end + kParameterEnd.size());
  }
  return call;
}

}  // namespace

ParsedMessage parse_qwen3_coder(std::string_view text) {
  Collector collector(text);
  for (size_t begin = text.find(kQwenOpen); begin != std::string_view::npos;) {
    const size_t inner = begin + kQwenOpen.size();
    const size_t function_end = text.find("</function>", inner);
    const size_t close = text.find(kQwenClose, std::min(function_end, text.size()));
    if (close == std::string_view::npos) {
      collector.add(fail(Status::invalid("it has no closing </function> and </tool_call>")), begin, text.size());
      break;
    }
    const size_t end = close + kQwenClose.size();
    collector.add(read_coder_call(text.substr(inner, close - inner)), begin, end);
    begin = text.find(kQwenOpen, end);
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
