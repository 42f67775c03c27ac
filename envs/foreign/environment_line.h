// A connection to an external environment: requests for several episodes, each with a deadline.
//
// Thread safety: ask() may be called from several threads; a program is asked one question after the other.
#pragma once

#include <memory>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "envs/foreign/environment_spec.h"

namespace tandem::envs {

// Timeout of notifications, which have no answer.
inline constexpr double kSecondsToTell = 5;

class EnvironmentLine {
 public:
  virtual ~EnvironmentLine() = default;
  // `method`: reset, step, state, score, close. kDeadline; kUnavailable where it is not there, has ended, or says that
  // it failed; kCorrupt for what is no answer to this question; kExhausted for an answer beyond
  // kLargestEnvironmentAnswer, and where questions of other episodes took all of `seconds` before its turn came; then
  // as long again for the answer. kCancelled where the question of another episode, or a notification, has broken the
  // line: nothing was asked.
  virtual Result<Json> ask(const std::string& method, const Json& params, double seconds) = 0;
  // The same without an answer to wait for: whatever comes, if anything does, is passed over. Waits for nobody else's
  // question.
  virtual void tell(const std::string& method, const Json& params) = 0;
  // Whether every later question fails: answers and questions do not belong together any more, or it has ended.
  virtual bool is_broken() const = 0;
};

// Starts its program, or names its server. The program gets lines {"id", "method", "params"} and answers each with a
// line {"id", "result"} or {"id", "error": {"message"}}; its input ends when it is not needed any more, and a second
// later it is killed with all of its process group.
Result<std::unique_ptr<EnvironmentLine>> open_line(const EnvironmentSpec& spec);

}  // namespace tandem::envs
