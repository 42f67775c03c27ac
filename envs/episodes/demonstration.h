// Demonstrations for the warm start: an oracle that looks, acts and answers, with noisy decisions.
//
// Calls really run, so results are those that the model will meet. The oracle knows the task; noise in its decisions
// leaves room for reinforcement learning, while the text that it copies stays clean.
#pragma once

#include <vector>

#include "base/random.h"
#include "envs/episodes/turn.h"
#include "envs/sandbox/sandbox.h"
#include "envs/tasks/grade.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

// Probabilities: of a random valid call in place of the next one, and of one wrong argument in it, per turn; and of a
// transcript whose instruction dictates the deciding call word for word, which teaches the format alone.
struct Noise {
  double random_tool = 0;
  double corrupt_argument = 0;
  double dictated = 0;
};

// A message of the oracle's: calls, or an answer.
struct DemonstratedTurn {
  std::vector<Call> calls;
  std::string answer;                 // where there are no calls
  std::vector<ToolOutcome> outcomes;  // of the calls; none of the last turn's
};

struct Transcript {
  Task task;  // as the model is told of it
  std::vector<DemonstratedTurn> turns;
  Grade grade;
  bool dictated = false;
};

// Runs on the host in a scratch folder; the calls are ours. An error only where the machine fails.
Result<Transcript> demonstrate(const Task& task, Random& random, const Noise& noise);
Result<Transcript> demonstrate(const Task& task, Random& random, const Noise& noise, SandboxBackend& backend);

// A valid call about this task, without knowledge of its solution.
Call random_call(const Task& task, Random& random);

}  // namespace tandem::envs
