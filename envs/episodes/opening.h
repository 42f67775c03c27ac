// The opening of an episode: its first messages and the tools that the model can call.
//
// How calls and results are written is the model's matter (rollout/agent/conversation.h): here they are structures.
// Thread safety: functions of their arguments.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "envs/tasks/task.h"
#include "envs/tools/tool.h"

namespace tandem::envs {

struct Message {
  std::string role;  // system, user
  std::string content;
  friend bool operator==(const Message&, const Message&) = default;
};

// Where a model reads which tools there are: its chat template writes them, or they stand in the system message, with
// the format of calls, for templates that know no tools.
enum class ToolListing : uint8_t { kByTemplate, kInMessages };

struct Opening {
  std::vector<Message> messages;  // system and user
  Json tools;                     // OpenAI's array, whichever way they are listed
};

// The tools that a prompt names unless a list names others. No others exist in an episode, whatever else the library
// has: what a model is told about an unknown name depends on them.
std::vector<std::string> prompted_tools(WithSearch search = WithSearch::kNo);

// The system message where the template writes the tools and the format of calls, unless a profile has another.
inline constexpr std::string_view kSystemMessage =
    "You work in the folder /workspace by calling tools. Read what you are about to change before you change it, make "
    "the changes that the task asks for and no others, and check them where that is possible. Calls that do not depend "
    "on each other can be made in one message. When the task is done, say so in a sentence or two without a call; when "
    "asked for a value, answer with it alone.";

// These tools and those of others, then the files and the instruction. The task's files count by their names. `system`
// is the message where the template writes the tools; `packages` what is said of registries of packages.
Opening opening(const Task& task, std::span<const std::string> tools, std::span<const ForeignTool> foreign,
                ToolListing listing, std::string_view system = kSystemMessage, std::string_view packages = {});

// OpenAI's array of both.
Json schemas_of(std::span<const std::string> tools, std::span<const ForeignTool> foreign);

}  // namespace tandem::envs
