// Sandboxes of another backend, with what their calls use of the processors summed up.
//
// Thread safety: that of the backend inside, which outlives it. Its sandboxes may outlive it.
#pragma once

#include <atomic>
#include <memory>

#include "envs/sandbox/sandbox.h"

namespace tandem::eval {

class MeteredBackend final : public envs::SandboxBackend {
 public:
  explicit MeteredBackend(envs::SandboxBackend& backend) : backend_(backend) {}
  Result<std::unique_ptr<envs::Sandbox>> create(const envs::SandboxSpec& spec) override;
  std::string_view kind() const override { return backend_.kind(); }
  uint64_t spawners_started() const override { return backend_.spawners_started(); }

  // Of all calls that have ended. Programs that a call left behind in the background are not counted.
  double core_seconds() const { return *core_seconds_; }

 private:
  envs::SandboxBackend& backend_;
  const std::shared_ptr<std::atomic<double>> core_seconds_ = std::make_shared<std::atomic<double>>(0.0);
};

}  // namespace tandem::eval
