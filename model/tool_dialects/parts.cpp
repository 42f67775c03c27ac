#include "model/tool_dialects/parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace tandem::model {

void Collector::add(Result<ToolCall> call, size_t begin, size_t end) {
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

ParsedMessage Collector::finish() {
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

Result<Json> read_arguments(Json arguments, std::string_view what) {
  if (arguments.is_string()) {  // an object written as a string, as OpenAI's format has it
    auto inner = parse_json(arguments.get_ref<const std::string&>());
    if (inner) arguments = std::move(*inner);
  }
  if (!arguments.is_object()) return fail(Status::invalid(fmt::format("{} is not a JSON object", what)));
  return arguments;
}

Result<ToolCall> read_call(std::string_view json_text, std::initializer_list<std::string_view> argument_keys) {
  const auto json = parse_json(json_text);
  if (!json) return fail(Status::invalid(fmt::format("the JSON of the call is wrong: {}", json.error().message())));
  return read_call(*json, argument_keys);
}

std::string_view unquoted(std::string_view name) {
  name = trim(name);
  const bool quoted = name.size() >= 2 && (name[0] == '"' || name[0] == '\'') && name.back() == name[0];
  return quoted ? trim(name.substr(1, name.size() - 2)) : name;
}

bool may_be_name(std::string_view word) {
  return !word.empty() && word.find_first_of(" \t\r\n<>{}()[]\"'=,;") == std::string_view::npos;
}

Result<ToolCall> read_call(const Json& whole, std::initializer_list<std::string_view> argument_keys) {
  const bool wrapped = whole.is_object() && whole.contains("function") && whole["function"].is_object();
  const Json& json = wrapped ? whole["function"] : whole;
  if (!json.is_object()) return fail(Status::invalid("the call is not a JSON object with \"name\" and \"arguments\""));
  const std::string_view expected = *argument_keys.begin();
  const Json name = json.value("name", wrapped ? Json() : json.value("function", Json()));
  if (!name.is_string() || unquoted(name.get_ref<const std::string&>()).empty()) {
    return fail(Status::invalid("the call has no \"name\" that is a string"));
  }
  ToolCall call{.name = std::string(unquoted(name.get_ref<const std::string&>()))};
  if (wrapped) {
    for (const auto& [key, value] : whole.items()) {
      if (key != "function" && key != "type" && key != "id")
        return fail(Status::invalid(fmt::format("the call has the unknown key \"{}\" beside \"function\"", key)));
      if (key == "id" && value.is_string()) call.id = value.get<std::string>();
    }
  }
  bool found = false;
  for (const auto& [key, value] : json.items()) {
    if (key == "name" || (key == "function" && !json.contains("name")) || (key == "type" && value == Json("function")))
      continue;
    if (key == "id" && value.is_string()) {
      call.id = value.get<std::string>();
      continue;
    }
    if (std::find(argument_keys.begin(), argument_keys.end(), key) == argument_keys.end()) {
      return fail(Status::invalid(
          fmt::format("the call has the unknown key \"{}\"; it takes \"name\" and \"{}\"", key, expected)));
    }
    if (found) return fail(Status::invalid("the call has its arguments twice"));
    found = true;
    call.arguments = TRY(read_arguments(value, fmt::format("\"{}\"", key)));
  }
  return call;
}

size_t end_of_json(std::string_view text, size_t begin) {
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
    } else if (text[i] == '{' || text[i] == '[') {
      ++depth;
    } else if ((text[i] == '}' || text[i] == ']') && --depth == 0) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

std::string value_as_text(const Json& value) { return value.is_string() ? value.get<std::string>() : dump_json(value); }

}  // namespace tandem::model
