// Parses tool calls in an assistant's text by the dialect that its model was trained on.
//
// Text beside calls is kept. What a model wrote is never rendered back into training tokens from here: the parse is for
// running the calls. A malformed call becomes a ToolCallError whose message is written for the model to read and act
// on; the other calls of the message are still found.
//
// Thread safety: const methods from any thread; no state.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace tandem::model {

struct ToolCall {
  std::string id;  // empty where the dialect has none
  std::string name;
  Json arguments = Json::object();  // always an object
  size_t begin = 0;                 // bytes of the text that the call takes, its tags included
  size_t end = 0;
};

struct ToolCallError {
  std::string message;  // "tool call 2: the JSON is not valid at line 1 column 14: ..."
  size_t begin = 0;
  size_t end = 0;
};

struct ParsedMessage {
  std::string reasoning;  // of parse_message (model/message_format.h); empty elsewhere
  std::string content;    // what is not in calls; white space around calls is cut off
  std::vector<ToolCall> calls;
  std::vector<ToolCallError> errors;
  std::vector<size_t> order;  // of both in the text: i < calls.size() is calls[i], else errors[i - calls.size()]
};

// A file each in model/tool_dialects/, which says what it looks like.
enum class ToolDialect : uint8_t {
  kHermes,
  kQwen3Coder,
  kGlm4,
  kLlama3,
  kDeepseekV3,
  kDeepseekV31,
  kKimiK2,
  kMistral,
  kMistralV11
};
inline constexpr std::array kToolDialects = {ToolDialect::kHermes, ToolDialect::kQwen3Coder, ToolDialect::kGlm4,
                                             ToolDialect::kLlama3, ToolDialect::kDeepseekV3, ToolDialect::kDeepseekV31,
                                             ToolDialect::kKimiK2, ToolDialect::kMistral,    ToolDialect::kMistralV11};

std::string_view name_of(ToolDialect dialect);

// The dialect that a chat template speaks, by the tags that it writes; kHermes where it writes none.
ToolDialect dialect_of_template(std::string_view chat_template);

// The dialect of a name, as name_of gives it.
std::optional<ToolDialect> dialect_named(std::string_view name);

// `text`: what the assistant said, without the end token. `tools` (OpenAI's array) tell a call from a text that looks
// like one, in dialects without marks and where marks are missing; null: it is not known what was offered. In blocks of
// reasoning, <think> to </think> and their kind, no call is looked for; they are content.
ParsedMessage parse_tool_calls(ToolDialect dialect, std::string_view text, const Json& tools = Json());

// `text` without the tokens at its end that end messages of the models that speak the dialect, or of this model
// (`own`), and white space behind those.
std::string_view without_end_tokens(ToolDialect dialect, std::string_view text, std::span<const std::string> own = {});

// Whether the dialect writes all values as texts, so that a 3 and a "3" look the same.
bool has_text_values(ToolDialect dialect);
// Makes of texts what the JSON Schemas of `tools` (OpenAI's array) say that they are, where they are that: JSON, or
// Python's literals, as which templates write values.
void give_types(const Json& tools, std::vector<ToolCall>& calls);

// A call as the dialect writes it, for demonstrations.
std::string format_tool_call(ToolDialect dialect, std::string_view name, const Json& arguments);

}  // namespace tandem::model
