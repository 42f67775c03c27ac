// The dialects, a file each: how calls are read out of a text, and how one is written. What several need is in parts.h.
//
// Parsing takes any bytes, in time linear in the text but for the tags that it looks for again after a call.
#pragma once

#include <memory>

#include "model/tool_dialect.h"
#include "model/tool_dialects/marks.h"
#include "model/tool_dialects/offered_tools.h"

namespace tandem::model {

using Offered = std::shared_ptr<const OfferedTools>;

// Parses with the dialect's own parser below, which ignores blocks of reasoning.
ParsedMessage parse_by_dialect(ToolDialect dialect, std::string_view text, const Offered& offered);

// Whether a closing tag at `at`, outside of calls, ends what was meant as one: `from` is where the text behind the call
// before it begins.
bool closes_no_hermes_call(std::string_view text, size_t from, size_t at);
ParsedMessage parse_hermes(std::string_view text, const Offered& offered);
std::string format_hermes(std::string_view name, const Json& arguments);

ParsedMessage parse_qwen3_coder(std::string_view text, const Offered& offered);
std::string format_qwen3_coder(std::string_view name, const Json& arguments);

ParsedMessage parse_glm4(std::string_view text, const Offered& offered);
std::string format_glm4(std::string_view name, const Json& arguments);

// Moves `at` over what stands between calls, tags included; whether there was a tag.
bool skip_to_llama_call(std::string_view text, size_t& at);
// Parses the text after the first call, or after the mark: only calls, of any name.
ParsedMessage parse_more_llama3(std::string_view text);
ParsedMessage parse_llama3(std::string_view text, const Offered& offered);
std::string format_llama3(std::string_view name, const Json& arguments);

// Both of V3 and of V3.1, whatever the template writes.
ParsedMessage parse_deepseek(std::string_view text, const Offered& offered);
std::string format_deepseek_v3(std::string_view name, const Json& arguments);
std::string format_deepseek_v31(std::string_view name, const Json& arguments);

ParsedMessage parse_kimi_k2(std::string_view text, const Offered& offered);
std::string format_kimi_k2(std::string_view name, const Json& arguments);

// Whether a call begins at a mark: [TOOL_CALLS], or, where tools are known, [ARGS] before an object, whose [TOOL_CALLS]
// is missing.
CallMark mistral_mark_at(std::string_view text, size_t at, const OfferedTools& offered, bool whole);

// Where the JSON begins whose calls, or arguments behind a name, stand behind a mark that ends at `inner`.
struct MistralBody {
  size_t json = std::string_view::npos;  // another mark comes first, or the text ends
  bool undecided = false;
};
MistralBody mistral_body(std::string_view text, size_t inner, bool whole);
// Both notations, whatever the template writes.
ParsedMessage parse_mistral(std::string_view text, const Offered& offered);
std::string format_mistral(std::string_view name, const Json& arguments);
std::string format_mistral_v11(std::string_view name, const Json& arguments);

}  // namespace tandem::model
