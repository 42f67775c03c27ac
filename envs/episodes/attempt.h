// An attempt at a task as the environment server plays it: from its opening to its grade.
//
// Episode (episode.h) is one in a sandbox, ForeignEpisode (envs/foreign) one in an environment of somebody else's.
// Thread safety: none; one attempt is driven by one thread at a time. Errors: every error is one of the infrastructure,
// and such an attempt has no reward.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "envs/episodes/opening.h"
#include "envs/episodes/turn.h"
#include "envs/sandbox/sandbox.h"
#include "envs/tasks/grade.h"

namespace tandem::envs {

class Attempt {
 public:
  virtual ~Attempt() = default;
  // Its task; of an environment of somebody else's the name, the instruction and the most turns.
  virtual const Task& task() const = 0;
  virtual Opening opening(ToolListing listing) const = 0;
  // All calls of one message; `text` is what was said beside them.
  virtual Result<std::vector<ToolOutcome>> turn(std::span<const ParsedCall> calls, std::string_view text) = 0;
  // Whether it is at its end, and only its grade is left.
  virtual bool over() const = 0;
  // The instruction of the next step after a message without calls; empty where the attempt is at its end.
  virtual Result<std::optional<std::string>> next_step(std::string_view answer) = 0;
  // Once.
  virtual Result<Grade> score(std::string_view final_answer) = 0;
  // The files that were left behind, once it is scored and where it was asked to keep them; else null.
  virtual const Collected* left_behind() const { return nullptr; }
};

}  // namespace tandem::envs
