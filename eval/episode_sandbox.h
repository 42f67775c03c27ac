// The sandbox of an episode as an agent takes it: every call is the episode's, which counts it.
//
// Calls run one after another. A call that has begun when a stop is asked for runs to its end, within its time limit.
#pragma once

#include <mutex>

#include "envs/episodes/episode.h"

namespace tandem::eval {

class EpisodeSandbox final : public envs::Sandbox {
 public:
  // The episode outlives it.
  explicit EpisodeSandbox(envs::Episode& episode) : episode_(episode) {}

  Status put(const envs::Files& files) override;
  Result<envs::ToolOutcome> call(std::string_view name, const Json& arguments, const std::stop_token& stop) override;
  Result<envs::Collected> collect() override;
  void set_call_limits(const envs::SandboxSpec&) override {}  // they are the episode's
  bool has_ended() const override { return false; }
  void end(std::string_view why) override;

 private:
  envs::Episode& episode_;
  std::mutex mutex_;
  std::string ended_;
};

}  // namespace tandem::eval
