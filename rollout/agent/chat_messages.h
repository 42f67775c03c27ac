// Turns of a model and what follows them as messages of a chat template, in OpenAI's format.
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

// A turn of the model as it is read.
struct Said {
  std::string text;                     // outside of calls; the answer where there are none
  std::string reasoning;                // that is no part of the answer
  std::vector<envs::ParsedCall> calls;  // in the order of the text, unreadable ones among them
  friend bool operator==(const Said&, const Said&) = default;
};

// What follows a turn of the model's: the results of its calls, the words of the user, or both.
struct Reply {
  std::vector<std::string> results;  // one for each call
  std::string instruction;           // of the user; behind results only where it is not empty
};

// How a chat template wants messages with calls.
struct CallNotation {
  envs::ToolListing listing = envs::ToolListing::kInMessages;
  model::ToolDialect dialect = model::ToolDialect::kHermes;
  bool arguments_as_text = false;  // it puts texts together, as Python's json.dumps writes them
  bool one_call = false;           // it refuses several in one message
};

// The id that a call has, or gets: `number` counts those of the turn, or of the conversation.
std::string id_of(const envs::ParsedCall& call, size_t number, const CallNotation& notation);

Json message_of(const envs::Message& message);
// The assistant's. A call that could not be read stands for itself without its text.
Json message_of(const Said& said, const CallNotation& notation);
// Those of a tool, one for each result, and one of the user's where there were no calls or it has words.
Json messages_of(const Said& said, const Reply& reply, const CallNotation& notation);

}  // namespace tandem::rollout
