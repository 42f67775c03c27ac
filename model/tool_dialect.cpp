#include "model/tool_dialect.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace tandem::model {
namespace {

constexpr std::string_view kOpen = "<tool_call>";
constexpr std::string_view kClose = "</tool_call>";
constexpr std::string_view kPythonTag = "<|python_tag|>";

// Name and arguments out of one JSON object; the failure says what would be right.
Result<ToolCall> read_call(std::string_view json_text, std::initializer_list<std::string_view> argument_keys) {
  const auto json = parse_json(json_text);
  if (!json) return fail(Status::invalid(fmt::format("the JSON of the call is wrong: {}", json.error().message())));
  if (!json->is_object()) return fail(Status::invalid("the call is not a JSON object with \"name\" and \"arguments\""));
  const std::string_view expected = *argument_keys.begin();
  const auto name = json->find("name");
  if (name == json->end() || !name->is_string() || name->get_ref<const std::string&>().empty()) {
    return fail(Status::invalid("the call has no \"name\" that is a string"));
  }
  ToolCall call{.name = name->get<std::string>()};
  bool found = false;
  for (const auto& [key, value] : json->items()) {
    if (key == "name") continue;
    if (std::find(argument_keys.begin(), argument_keys.end(), key) == argument_keys.end()) {
      return fail(Status::invalid(
          fmt::format("the call has the unknown key \"{}\"; it takes \"name\" and \"{}\"", key, expected)));
    }
    if (found) return fail(Status::invalid("the call has its arguments twice"));
    found = true;
    Json arguments = value;
    if (arguments.is_string()) {  // an object written as a string, as OpenAI's format has it
      auto inner = parse_json(arguments.get_ref<const std::string&>());
      if (inner) arguments = std::move(*inner);
    }
    if (!arguments.is_object()) return fail(Status::invalid(fmt::format("\"{}\" is not a JSON object", key)));
    call.arguments = std::move(arguments);
  }
  return call;
}

class Collector {
 public:
  explicit Collector(std::string_view text) : text_(text) {}

  void add(Result<ToolCall> call, size_t begin, size_t end) {
    content_.push_back(std::string(trim(text_.substr(covered_, begin - covered_))));
    covered_ = end;
    const size_t number = ++count_;
    if (call) {
      call->begin = begin;
      call->end = end;
      is_call_.push_back(true);
      message_.calls.push_back(std::move(*call));
    } else {
      is_call_.push_back(false);
      message_.errors.push_back({fmt::format("tool call {}: {}", number, call.error().message()), begin, end});
    }
  }

  ParsedMessage finish() {
    content_.push_back(std::string(count_ == 0 ? text_ : trim(text_.substr(covered_))));
    for (const std::string& part : content_) {
      if (part.empty()) continue;
      message_.content += (message_.content.empty() ? "" : "\n") + part;
    }
    size_t call = 0;
    size_t error = message_.calls.size();
    for (const bool is_call : is_call_) message_.order.push_back(is_call ? call++ : error++);
    return std::move(message_);
  }

 private:
  std::string_view text_;
  ParsedMessage message_;
  std::vector<std::string> content_;
  std::vector<bool> is_call_;
  size_t covered_ = 0;
  size_t count_ = 0;
};

// Where a JSON object that starts at `begin` ends, by its braces outside of strings; npos where it does not.
size_t end_of_object(std::string_view text, size_t begin) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = begin; i < text.size(); ++i) {
    if (in_string) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        in_string = false;
    } else if (text[i] == '"') {
      in_string = true;
    } else if (text[i] == '{') {
      ++depth;
    } else if (text[i] == '}' && --depth == 0) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

ParsedMessage parse_hermes(std::string_view text) {
  Collector collector(text);
  size_t from = 0;
  for (;;) {
    const size_t begin = text.find(kOpen, from);
    if (begin == std::string_view::npos) break;
    const size_t inner = begin + kOpen.size();
    // The tag may stand inside of a string of the JSON, so the object says first where the call ends.
    const size_t brace = text.find_first_not_of(" \t\r\n", inner);
    size_t search = inner;
    if (brace != std::string_view::npos && text[brace] == '{') {
      const size_t object_end = end_of_object(text, brace);
      const size_t close =
          object_end == std::string_view::npos ? object_end : text.find_first_not_of(" \t\r\n", object_end);
      if (close != std::string_view::npos && text.substr(close).starts_with(kClose)) search = close;
    }
    const size_t close = text.find(kClose, search);
    if (close == std::string_view::npos) {
      collector.add(fail(Status::invalid("it has no closing </tool_call>")), begin, text.size());
      break;
    }
    from = close + kClose.size();
    collector.add(read_call(trim(text.substr(inner, close - inner)), {"arguments"}), begin, from);
  }
  return collector.finish();
}

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

ParsedMessage parse_qwen3_coder(std::string_view text) {
  Collector collector(text);
  for (size_t begin = text.find(kOpen); begin != std::string_view::npos;) {
    const size_t inner = begin + kOpen.size();
    const size_t function_end = text.find("</function>", inner);
    const size_t close = text.find(kClose, std::min(function_end, text.size()));
    if (close == std::string_view::npos) {
      collector.add(fail(Status::invalid("it has no closing </function> and </tool_call>")), begin, text.size());
      break;
    }
    const size_t end = close + kClose.size();
    collector.add(read_coder_call(text.substr(inner, close - inner)), begin, end);
    begin = text.find(kOpen, end);
  }
  return collector.finish();
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
    const size_t end = text[at] == '{' ? end_of_object(text, at) : std::string_view::npos;
    if (end == std::string_view::npos) {
      collector.add(fail(Status::invalid("it is not a whole JSON object")), begin, text.size());
      break;
    }
    collector.add(read_call(text.substr(at, end - at), {"parameters", "arguments"}), begin, end);
    at = begin = end;
  }
  return collector.finish();
}

}  // namespace

std::string_view name_of(ToolDialect dialect) {
  switch (dialect) {
    case ToolDialect::kQwen3Coder:
      return "qwen3_coder";
    case ToolDialect::kLlama3:
      return "llama3";
    default:
      return "hermes";
  }
}

ToolDialect dialect_of_template(std::string_view chat_template) {
  const auto writes = [&](std::string_view tag) { return chat_template.find(tag) != std::string_view::npos; };
  if (writes(kOpen)) return writes("<function=") ? ToolDialect::kQwen3Coder : ToolDialect::kHermes;
  return writes(kPythonTag) || writes("\"parameters\": ") ? ToolDialect::kLlama3 : ToolDialect::kHermes;
}

ParsedMessage parse_tool_calls(ToolDialect dialect, std::string_view text) {
  switch (dialect) {
    case ToolDialect::kQwen3Coder:
      return parse_qwen3_coder(text);
    case ToolDialect::kLlama3:
      return parse_llama3(text);
    default:
      return parse_hermes(text);
  }
}

std::string format_tool_call(ToolDialect dialect, std::string_view name, const Json& arguments) {
  if (dialect == ToolDialect::kLlama3) return dump_json(Json{{"name", name}, {"parameters", arguments}});
  if (dialect == ToolDialect::kHermes) {
    return fmt::format("{}\n{}\n{}", kOpen, dump_json(Json{{"name", name}, {"arguments", arguments}}), kClose);
  }
  std::string out = fmt::format("{}\n<function={}>\n", kOpen, name);
  for (const auto& [key, value] : arguments.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : dump_json(value);
    out += fmt::format("<parameter={}>\n{}\n</parameter>\n", key, text);
  }
  return out + fmt::format("</function>\n{}", kClose);
}

}  // namespace tandem::model
