// Sandboxes of this machine's own programs by one backend, and those of images by a container engine.
//
// The engine is looked up when the first spec has an image; its absence is the error of that call. The next such spec
// looks again.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

class ContainerBackend;

// Values of env.engine of a run beside the path of a socket and kAnyEngine (envs/container/engine.h); also of
// TANDEM__ENV__ENGINE in the environment, for commands without a config.
inline constexpr std::string_view kNoEngine = "none";
inline constexpr const char* kEngineVariable = "TANDEM__ENV__ENGINE";

// `engine`, or where it is empty what the environment says, or kAnyEngine.
std::string engine_place(const std::string& engine);

class ChoosingBackend final : public SandboxBackend {
 public:
  // `own` serves specs without an image. `engine` as engine_place gives it; `label` is a label of containers (the run
  // directory).
  ChoosingBackend(std::unique_ptr<SandboxBackend> own, std::string engine, std::string label);
  ~ChoosingBackend() override;

  Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& spec) override;
  std::string_view kind() const override { return own_->kind(); }
  uint64_t spawners_started() const override { return own_->spawners_started(); }

 private:
  Result<ContainerBackend*> containers();

  const std::unique_ptr<SandboxBackend> own_;
  const std::string engine_, label_;
  std::mutex mutex_;
  std::unique_ptr<ContainerBackend> containers_;
};

// Whether the images are there; all that are not, a line each. kUnfit where one is not, or no engine answers.
Status check_images(const std::string& engine, const std::set<std::string>& images);

}  // namespace tandem::envs
