// Who takes the turns of an agent: our own engine, or a server.
//
// Ownership: a model holds the whole conversation, from its opening messages to the last turn. Thread safety: none; one
// turn at a time, on any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "envs/episodes/opening.h"
#include "envs/episodes/turn.h"
#include "envs/tools/tool.h"

namespace tandem::rollout {

// Tokens of one turn, as far as they are known.
struct TokenUse {
  std::optional<uint64_t> prompt, cached, completion;
};

struct AgentTurn {
  std::string text;       // outside of calls; the answer where there are none
  std::string reasoning;  // that is not part of the answer
  std::vector<envs::ParsedCall> calls;
  std::vector<std::string> call_ids;  // one for each call
  std::string summary;                // of the conversation before, from which this turn went on; empty: none was made
  std::string cut_by;                 // the limit that it was cut at; empty: it ended by itself
  std::string model;                  // that answered
  TokenUse use;
  // Of our own engine: what it saw, what it said, and how likely that was.
  std::vector<int32_t> prompt_ids, completion_ids;
  std::vector<float> logprobs;
};

// What is heard while a turn is taken, on the thread that takes it.
struct TurnListener {
  std::function<void(std::string_view text)> text;       // the next piece, of whole characters; calls are left out
  std::function<void(const std::string& note)> trouble;  // what went wrong and what is done about it
};

class AgentModel {
 public:
  virtual ~AgentModel() = default;
  virtual std::string name() const = 0;
  // What every turn follows.
  virtual const std::vector<envs::Message>& opening() const = 0;
  // The OpenAI array of the tools that the model is told of.
  virtual const Json& tools() const = 0;
  // The next turn, after `replies` to the calls of the one before. kCancelled soon after `stop` was asked for.
  virtual Result<AgentTurn> turn(std::span<const envs::ToolOutcome> replies, const TurnListener& listener,
                                 const std::stop_token& stop) = 0;
};

}  // namespace tandem::rollout
