#include "rollout/agent/text_calls.h"

#include "base/text.h"

namespace tandem::rollout {
namespace {

void write_json(const Json& value, std::string& text) {
  if (value.is_object()) {
    text += '{';
    bool first = true;
    for (const auto& [key, item] : value.items()) {
      if (!first) text += ", ";
      first = false;
      text += dump_json(Json(key)) + ": ";
      write_json(item, text);
    }
    text += '}';
  } else if (value.is_array()) {
    text += '[';
    for (size_t i = 0; i < value.size(); ++i) {
      if (i > 0) text += ", ";
      write_json(value[i], text);
    }
    text += ']';
  } else {
    text += dump_json(value);
  }
}

}  // namespace

std::string python_json(const Json& value) {
  std::string text;
  write_json(value, text);
  return text;
}

std::string write_calls(std::span<const envs::Call> calls) {
  std::string text;
  for (const auto& call : calls) {
    if (!text.empty()) text += '\n';
    text += "<tool_call>" + python_json(Json{{"name", call.name}, {"arguments", call.arguments}}) + "</tool_call>";
  }
  return text;
}

std::string write_results(std::span<const std::string> results) {
  std::string text;
  for (const auto& result : results) {
    if (!text.empty()) text += '\n';
    text += "<tool_response>\n" + result;
    if (text.back() != '\n') text += '\n';
    text += "</tool_response>";
  }
  return text;
}

}  // namespace tandem::rollout
