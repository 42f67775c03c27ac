// A line to an environment of somebody else's: one question after the other, each with a deadline.
//
// Thread safety: one question at a time. After an error the line is of no use any more.
#pragma once

#include <memory>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "envs/foreign/environment_spec.h"

namespace tandem::envs {

class EnvironmentLine {
 public:
  virtual ~EnvironmentLine() = default;
  // `method`: reset, step, state, score. kDeadline; kUnavailable where it is not there, has ended, or says that it
  // failed; kCorrupt for what is no answer to this question; kExhausted for an answer beyond kLargestEnvironmentAnswer.
  virtual Result<Json> ask(const std::string& method, const Json& params, double seconds) = 0;
};

// Starts its program, or names its server. The program gets lines {"id", "method", "params"} and answers each with a
// line {"id", "result"} or {"id", "error": {"message"}}; its input ends when it is not needed any more, and a second
// later it is killed with all of its process group.
Result<std::unique_ptr<EnvironmentLine>> open_line(const EnvironmentSpec& spec);

}  // namespace tandem::envs
