#include "model/tool_dialect.h"

#include <array>

#include "model/tool_dialects/dialects.h"
#include "model/tool_dialects/python_call.h"
#include "model/tool_dialects/text_types.h"

namespace tandem::model {
namespace {

struct Dialect {
  const char* name;
  ParsedMessage (*parse)(std::string_view, const Offered&);
  std::string (*format)(std::string_view, const Json&);
  bool text_values = false;
};
// By number.
constexpr std::array kDialects = {
    Dialect{"hermes", parse_hermes, format_hermes},
    Dialect{"qwen3_coder", parse_qwen3_coder, format_qwen3_coder, true},
    Dialect{"glm4", parse_glm4, format_glm4, true},
    Dialect{"llama3", parse_llama3, format_llama3},
    Dialect{"deepseek_v3", parse_deepseek, format_deepseek_v3},
    Dialect{"deepseek_v31", parse_deepseek, format_deepseek_v31},
    Dialect{"kimi_k2", parse_kimi_k2, format_kimi_k2},
    Dialect{"mistral", parse_mistral, format_mistral},
    Dialect{"mistral_v11", parse_mistral, format_mistral_v11},
};
static_assert(kDialects.size() == kToolDialects.size());

const Dialect& of(ToolDialect dialect) { return kDialects[static_cast<size_t>(dialect)]; }

}  // namespace

std::string_view name_of(ToolDialect dialect) { return of(dialect).name; }

ToolDialect dialect_of_template(std::string_view chat_template) {
  const auto writes = [&](std::string_view tag) { return chat_template.find(tag) != std::string_view::npos; };
  if (writes("<｜tool▁call▁begin｜>")) return writes("```json") ? ToolDialect::kDeepseekV3 : ToolDialect::kDeepseekV31;
  if (writes("<|tool_call_begin|>")) return ToolDialect::kKimiK2;
  if (writes("[TOOL_CALLS]")) return writes("[ARGS]") ? ToolDialect::kMistralV11 : ToolDialect::kMistral;
  if (writes("<tool_call>")) {
    if (writes("<arg_key>")) return ToolDialect::kGlm4;
    return writes("<function=") ? ToolDialect::kQwen3Coder : ToolDialect::kHermes;
  }
  return writes("<|python_tag|>") || writes("\"parameters\": ") ? ToolDialect::kLlama3 : ToolDialect::kHermes;
}

std::optional<ToolDialect> dialect_named(std::string_view name) {
  for (const auto dialect : kToolDialects)
    if (name_of(dialect) == name) return dialect;
  return std::nullopt;
}

ParsedMessage parse_tool_calls(ToolDialect dialect, std::string_view text, const Json& tools) {
  return of(dialect).parse(text, std::make_shared<const OfferedTools>(tools));
}

std::string format_tool_call(ToolDialect dialect, std::string_view name, const Json& arguments) {
  return of(dialect).format(name, arguments);
}

bool has_text_values(ToolDialect dialect) { return of(dialect).text_values; }

void give_types(const Json& tools, std::vector<ToolCall>& calls) {
  if (!tools.is_array()) return;
  for (ToolCall& call : calls) {
    for (const Json& tool : tools) {
      const Json& function = tool.is_object() && tool.contains("function") ? tool["function"] : tool;
      if (!function.is_object() || function.value("name", Json()) != call.name) continue;
      const Json parameters = function.value("parameters", Json());
      for (auto&& [key, value] : call.arguments.items()) {
        if (!value.is_string()) continue;
        const uint8_t types = types_of_parameter(parameters, key).value_or(kStringText) & ~kStringText;
        if (types == 0) continue;
        const std::string text = value.get<std::string>();
        for (auto meant : {parse_json(text), read_python_literal(text)}) {
          if (!meant || (type_of_value(*meant) & types) == 0) continue;
          value = std::move(*meant);
          break;
        }
      }
    }
  }
}

}  // namespace tandem::model
