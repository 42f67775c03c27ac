// Calls, and what tools a model was told of, as parts of messages. Who reads them trusts nobody: what is not what it
// should be is kCorrupt.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "envs/episodes/turn.h"
#include "wire/messages.capnp.h"

namespace tandem::envs {

void write_calls(std::span<const ParsedCall> calls, capnp::List<wire::ToolCall>::Builder out);
Result<std::vector<ParsedCall>> read_calls(capnp::List<wire::ToolCall>::Reader in);

// OpenAI's array of tools.
Result<Json> read_tools(std::string_view text);

}  // namespace tandem::envs
