// A line of `tandem generate` as what an engine is asked for, and how its answer is read.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rollout/engine/engine.h"
#include "serve/constraints.h"

namespace tandem::cli {

struct GenerateRequest {
  std::vector<int32_t> prompt;
  rollout::TurnRequest turn;
  int n = 1;  // answers; answer i draws with seed + i
  std::vector<std::string> stop_texts;
  std::optional<model::MessageFormat> format;  // of a chat: the answer is a message
  Json tools;                                  // that decide what is a call; see model::parse_message
  bool one_call = false;                       // of the message, the first call alone counts
  std::string warning;                         // empty: none
};

// Keys of a line, beside "id", with what each means.
struct GenerateKey {
  std::string_view name, about;
};
std::span<const GenerateKey> generate_keys();

// Keys that are null count as missing. kInvalid names the key.
Result<GenerateRequest> read_generate_request(const Json& line, const model::ModelConfig& config,
                                              const serve::TextSide& side, serve::Constraints& constraints);

// The assistant's message in `text`, without its end token: {"role", "content", ..} in OpenAI's chat format, cut before
// the first stop text. Malformed calls stand in "tool_call_errors".
Json message_of(const GenerateRequest& request, const std::string& text);

}  // namespace tandem::cli
