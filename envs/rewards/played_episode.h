// An episode that is over, as the user's reward programs get it: one JSON object (docs/rewards.md).
//
// Values and pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "envs/sandbox/files.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

struct PlayedEpisode {
  std::string task;  // its name, "echo/train/17"
  std::string kind;
  std::string split;
  std::string instruction;
  Json messages = Json::array();  // OpenAI's chat messages, from the system message to the last that was said
  Json calls = Json::array();     // {turn, name, arguments, output}; turns count from 0
  Files before, after;            // of the workspace
  bool files_complete = true;     // false where more was left behind than is collected
  std::string answer;             // the last message, where it ended the episode
  bool truncated = false;         // the limit of tokens or turns ended it
  double reward = 0;              // the grader's
  std::map<std::string, double> terms;
  std::string why;  // the grader's words, where it is not 1

  // Messages of the model.
  size_t turns() const;
};

// Bytes of the JSON at most.
inline constexpr size_t kLargestPlayedEpisode = size_t{8} << 20;

// Without numbers of the episode: equal attempts at a task give equal bytes. A file's content is left out where it is
// no UTF-8, larger than 64 KiB, or beyond 1 MiB of all. kExhausted where it is larger than kLargestPlayedEpisode.
Result<std::string> to_json_text(const PlayedEpisode& episode);

}  // namespace tandem::envs
