#include "eval/episode_sandbox.h"

namespace tandem::eval {

Status EpisodeSandbox::put(const envs::Files& files) {
  std::lock_guard lock(mutex_);
  return episode_.put(files);
}

Result<envs::ToolOutcome> EpisodeSandbox::call(std::string_view name, const Json& arguments,
                                               const std::stop_token& stop) {
  std::lock_guard lock(mutex_);
  if (!ended_.empty()) return fail(Status::unavailable(ended_));
  if (stop.stop_requested()) return fail(Status::cancelled("the call was cancelled"));
  return episode_.call(name, arguments);
}

Result<envs::Collected> EpisodeSandbox::collect() {
  return fail(Status::unavailable("an episode collects its files itself, when it is graded"));
}

void EpisodeSandbox::end(std::string_view why) {
  std::lock_guard lock(mutex_);
  ended_ = why;
}

}  // namespace tandem::eval
