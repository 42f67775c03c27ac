#include "eval/metered_backend.h"

#include "envs/sandbox/forwarding_sandbox.h"

namespace tandem::eval {
namespace {

class MeteredSandbox final : public envs::ForwardingSandbox {
 public:
  MeteredSandbox(std::unique_ptr<envs::Sandbox> inner, std::shared_ptr<std::atomic<double>> core_seconds)
      : ForwardingSandbox(std::move(inner)), core_seconds_(std::move(core_seconds)) {}
  Result<envs::ToolOutcome> call(std::string_view name, const Json& arguments, const std::stop_token& stop) override {
    auto outcome = inner_->call(name, arguments, stop);
    if (outcome) *core_seconds_ += outcome->core_seconds;
    return outcome;
  }

 private:
  const std::shared_ptr<std::atomic<double>> core_seconds_;
};

}  // namespace

Result<std::unique_ptr<envs::Sandbox>> MeteredBackend::create(const envs::SandboxSpec& spec) {
  return std::unique_ptr<envs::Sandbox>(std::make_unique<MeteredSandbox>(TRY(backend_.create(spec)), core_seconds_));
}

}  // namespace tandem::eval
