// A transcript to learn from, in one notation whatever format it came in.
//
// Read: OpenAI's messages format, the Agent Trajectory Interchange Format (ATIF 1.x), and lines of `tandem episodes
// --tokens`. The reader tells them apart and checks all that can be known without a model; a mistake names the message.
//
// Pure functions of untrusted JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"

namespace tandem::trainer {

// Messages as a chat template sees them.
struct Chat {
  Json messages = Json::array();    // OpenAI's; `arguments` of calls are objects
  Json tools;                       // OpenAI's list, or null
  Json variables = Json::object();  // chat_template_kwargs: what else the template sees
  std::vector<bool> muted;          // by message: an assistant's that is not learned from (`weight` 0)
  std::vector<size_t> numbers;      // by message: its place in the file's list

  // Whether any message is learned from.
  bool is_learned() const;
};

// Tokens as they were sampled.
struct Episode {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> sampled;  // [tokens]
  std::optional<double> reward;
  std::string split;                          // "train", or which of the held-out ones; empty: not said
  std::vector<uint32_t> later_segments = {};  // where segments begin that see nothing of those before
};

using Transcript = std::variant<Chat, Episode>;

// kInvalid says what is wrong, with the message where there is one: "messages[3] (assistant): ...".
Result<Transcript> read_transcript(const Json& json);

// kAsItIs: a conversation that is looked at and not learned from, where the assistant may say nothing, and call tools
// with what is no JSON object.
enum class Reading : uint8_t { kToLearn, kAsItIs };

// The parts of it.
Result<Chat> read_chat(const Json& json, Reading reading = Reading::kToLearn);  // {"messages": [..], "tools": [..]}
Result<Chat> read_atif(const Json& json);        // {"schema_version": "ATIF-v1.7", "steps": [..]}
Result<Episode> read_episode(const Json& json);  // {"tokens": [..], "sampled": [..], "reward": ..}

}  // namespace tandem::trainer
