// Converts turns of a model, and the replies to them, to messages of a chat template in OpenAI's format.
//
// Thread safety: functions of their arguments.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "envs/episodes/opening.h"
#include "envs/episodes/turn.h"
#include "model/tool_dialect.h"

namespace tandem::rollout {

// A parsed turn of the model.
struct Said {
  std::string text;                     // outside of calls; the answer where there are none
  std::string reasoning;                // that is no part of the answer
  std::vector<envs::ParsedCall> calls;  // in the order of the text, unreadable ones among them
  friend bool operator==(const Said&, const Said&) = default;
};

// The reply to a turn of the model: results of its calls, a message of the user, or both.
struct Reply {
  std::vector<std::string> results;  // one for each call
  std::string instruction;           // of the user; behind results only where it is not empty
};

// The format of messages with calls that a chat template expects.
struct CallNotation {
  envs::ToolListing listing = envs::ToolListing::kInMessages;
  model::ToolDialect dialect = model::ToolDialect::kHermes;
  bool arguments_as_text = false;  // it puts texts together, as Python's json.dumps writes them
  bool one_call = false;           // it refuses several in one message
};

// The id of a call, or a new one for it; `number` counts calls of the turn, or of the conversation.
std::string id_of(const envs::ParsedCall& call, size_t number, const CallNotation& notation);

Json message_of(const envs::Message& message);
// The assistant's message. A malformed call is kept without its text.
Json message_of(const Said& said, const CallNotation& notation);
// Tool messages, one for each result, and a user message where there were no calls or it has text.
Json messages_of(const Said& said, const Reply& reply, const CallNotation& notation);

}  // namespace tandem::rollout
