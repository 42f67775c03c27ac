// Calls and results as text inside of messages, in Hermes' notation: for chat templates that know no tools.
//
// `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, several in one message; their results in one user message
// with a `<tool_response>` block for each call, in order. Such a model is told of it in the system message
// (envs/episodes/opening.h).
#pragma once

#include <span>
#include <string>

#include "envs/tasks/task.h"

namespace tandem::rollout {

// JSON as Python's json.dumps writes it, which is what models have seen: ", " and ": ".
std::string python_json(const Json& value);

std::string write_calls(std::span<const envs::Call> calls);       // one a line: the assistant's message
std::string write_results(std::span<const std::string> results);  // the user's message

}  // namespace tandem::rollout
