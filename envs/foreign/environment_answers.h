// Decodes answers of external environments from untrusted bytes.
//
// Pure functions. kCorrupt, in words, for what is not as docs/environments.md says.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "envs/mcp/foreign_tools.h"

namespace tandem::envs {

// Bytes of one answer.
inline constexpr size_t kLargestEnvironmentAnswer = size_t{1} << 20;

struct ResetAnswer {
  std::string system;       // message; empty: none
  std::string instruction;  // the first message to the model
  std::vector<ForeignTool> tools;
  int max_turns = 10;  // messages of the model
  // The reward is the sum of what steps give; else it is asked for by `score`.
  bool sums_steps = false;
};

struct StepAnswer {
  std::string observation;           // what the model reads next, where it called nothing
  std::vector<std::string> results;  // of its calls
  std::optional<double> reward;      // of its message
  bool done = false;
};

struct ScoreAnswer {
  double reward = 0;
  std::map<std::string, double> terms;
};

Result<ResetAnswer> read_reset(const Json& json);
// `calls`: how many the message had. One observation stands for the results of one call.
Result<StepAnswer> read_step(const Json& json, size_t calls);
Result<ScoreAnswer> read_score(const Json& json);
// kCorrupt where an answer names an episode, and another one than `episode`.
Status check_episode(const Json& json, const std::string& episode);

}  // namespace tandem::envs
