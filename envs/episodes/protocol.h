// The model's view of a task: messages, call format, results.
//
// The format is that of Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, several in one
// message allowed; results come back in one user message with a `<tool_response>` block for each call, in order.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "envs/tasks/task.h"
#include "envs/tools/tool.h"

namespace tandem::envs {

struct Message {
  std::string role;  // system, user, assistant
  std::string content;
  friend bool operator==(const Message&, const Message&) = default;
};

// The tools that a prompt names unless a list names others. No others exist in an episode, whatever else the library
// has: what a model is told about an unknown name depends on them.
std::vector<std::string> prompted_tools(WithSearch search = WithSearch::kNo);

// The messages that open an episode: these tools, those of others and the call format, then the files and the
// instruction.
std::vector<Message> prompt(const Task& task, std::span<const std::string> tools,
                            std::span<const ForeignTool> foreign = {});
inline std::vector<Message> prompt(const Task& task) { return prompt(task, prompted_tools()); }

std::string render_call(const Call& call);
std::string render_calls(std::span<const Call> calls);  // one a line: an assistant message
Message render_responses(std::span<const ToolOutcome> outcomes);

struct ParsedCall {
  Call call;
  std::string error;  // for the model; empty where the call could be read
};
// A message of the model as an episode takes it: calls to run, or an answer.
struct ParsedTurn {
  std::vector<ParsedCall> calls;
  std::string text;  // what stands outside of calls; the answer where there are none
};
// Reads an assistant message. Malformed calls become errors for the model to read, never a failure of the program.
ParsedTurn parse_message(std::string_view content);

}  // namespace tandem::envs
