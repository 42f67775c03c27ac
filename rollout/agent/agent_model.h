// The model of an agent: our own engine, or a server.
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
  // From our own engine: prompt, sampled tokens, and their logprobs.
  std::vector<int32_t> prompt_ids, completion_ids;
  std::vector<float> logprobs;
};

// Callbacks during a turn, on the thread that takes it.
struct TurnListener {
  std::function<void(std::string_view text)> text;       // the next piece, of whole characters; calls are left out
  std::function<void(const std::string& note)> trouble;  // a problem, and how it is handled
};

class AgentModel {
 public:
  virtual ~AgentModel() = default;
  virtual std::string name() const = 0;
  // The messages before the first turn.
  virtual const std::vector<envs::Message>& opening() const = 0;
  // The tools that are offered to the model, as OpenAI's array.
  virtual const Json& tools() const = 0;
  // The next turn, after `replies` to the calls of the one before. kCancelled soon after `stop` was asked for.
  virtual Result<AgentTurn> turn(std::span<const envs::ToolOutcome> replies, const TurnListener& listener,
                                 const std::stop_token& stop) = 0;
};

}  // namespace tandem::rollout
