#include "model/tool_dialect.h"

#include <algorithm>
#include <array>

#include "model/reasoning.h"
#include "model/tool_dialects/dialects.h"
#include "model/tool_dialects/python_call.h"
#include "model/tool_dialects/text_types.h"
#include "model/tool_stream.h"

namespace tandem::model {
namespace {

struct Dialect {
  const char* name;
  ParsedMessage (*parse)(std::string_view, const Offered&);
  std::string (*format)(std::string_view, const Json&);
  std::array<std::string_view, 3> ends;  // tokens that end messages; empty: none
  bool text_values = false;
};
using Ends = std::array<std::string_view, 3>;
constexpr Ends kQwenEnds = {"<|im_end|>", "<|endoftext|>"}, kGlmEnds = {"<|user|>", "<|observation|>", "<|endoftext|>"},
               kLlamaEnds = {"<|eom_id|>", "<|eot_id|>", "<|end_of_text|>"}, kDeepseekEnds = {"<｜end▁of▁sentence｜>"},
               kKimiEnds = {"<|im_end|>", "[EOS]"}, kMistralEnds = {"</s>"};
// By number.
constexpr std::array kDialects = {
    Dialect{"hermes", parse_hermes, format_hermes, kQwenEnds},
    Dialect{"qwen3_coder", parse_qwen3_coder, format_qwen3_coder, kQwenEnds, true},
    Dialect{"glm4", parse_glm4, format_glm4, kGlmEnds, true},
    Dialect{"llama3", parse_llama3, format_llama3, kLlamaEnds},
    Dialect{"deepseek_v3", parse_deepseek, format_deepseek_v3, kDeepseekEnds},
    Dialect{"deepseek_v31", parse_deepseek, format_deepseek_v31, kDeepseekEnds},
    Dialect{"kimi_k2", parse_kimi_k2, format_kimi_k2, kKimiEnds},
    Dialect{"mistral", parse_mistral, format_mistral, kMistralEnds},
    Dialect{"mistral_v11", parse_mistral, format_mistral_v11, kMistralEnds},
};
static_assert(kDialects.size() == kToolDialects.size());

const Dialect& of(ToolDialect dialect) { return kDialects[static_cast<size_t>(dialect)]; }

bool has_reasoning_block(std::string_view text) {
  return std::ranges::any_of(kReasoningMarks, [&](const ReasoningMarks& marks) {
    const size_t begin = text.find(marks.begin);
    return begin != std::string_view::npos && text.find(marks.end, begin) != std::string_view::npos;
  });
}

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
  if (has_reasoning_block(text)) {
    ToolStream stream(dialect, tools);
    stream.push(text);
    stream.finish();
    return stream.message();
  }
  return parse_by_dialect(dialect, text, std::make_shared<const OfferedTools>(tools));
}

ParsedMessage parse_by_dialect(ToolDialect dialect, std::string_view text, const Offered& offered) {
  return of(dialect).parse(text, offered);
}

std::string format_tool_call(ToolDialect dialect, std::string_view name, const Json& arguments) {
  return of(dialect).format(name, arguments);
}

std::string_view without_end_tokens(ToolDialect dialect, std::string_view text, std::span<const std::string> own) {
  constexpr std::string_view kSpace = " \t\r\n";
  for (auto rest = text;;) {
    rest = rest.substr(0, rest.find_last_not_of(kSpace) + 1);
    std::string_view end;
    const auto look_for = [&](std::string_view token) {
      if (!token.empty() && rest.ends_with(token)) end = token;
    };
    std::ranges::for_each(of(dialect).ends, look_for);
    std::ranges::for_each(own, look_for);
    if (end.empty()) return text;
    rest.remove_suffix(end.size());
    text = rest;
  }
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
