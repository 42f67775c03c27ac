// The dialects, a file each: how calls are read out of a text, and how one is written. What several need is in parts.h.
//
// Parsing takes any bytes, in time linear in the text but for the tags that it looks for again after a call.
#pragma once

#include "model/tool_dialect.h"

namespace tandem::model {

ParsedMessage parse_hermes(std::string_view text);
std::string format_hermes(std::string_view name, const Json& arguments);

ParsedMessage parse_qwen3_coder(std::string_view text);
std::string format_qwen3_coder(std::string_view name, const Json& arguments);

ParsedMessage parse_glm4(std::string_view text);
std::string format_glm4(std::string_view name, const Json& arguments);

// Moves `at` over what stands between calls, tags included; whether there was a tag.
bool skip_to_llama_call(std::string_view text, size_t& at);
ParsedMessage parse_llama3(std::string_view text);
std::string format_llama3(std::string_view name, const Json& arguments);

// Both of V3 and of V3.1, whatever the template writes.
ParsedMessage parse_deepseek(std::string_view text);
std::string format_deepseek_v3(std::string_view name, const Json& arguments);
std::string format_deepseek_v31(std::string_view name, const Json& arguments);

ParsedMessage parse_kimi_k2(std::string_view text);
std::string format_kimi_k2(std::string_view name, const Json& arguments);

}  // namespace tandem::model
