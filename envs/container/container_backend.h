// Sandboxes in containers of an engine, for those who bring images.
//
// Each is a container of a prepared image (image_plan.h) whose first process is the program of sandboxes: it serves the
// same tools, in the same bytes, as every other sandbox, and confines itself in the same way on top of what the engine
// does. The engine gives it no network, four capabilities that it drops before anything of a model is there, a
// read-only root, and limits. Everything ends with that process, which ends with its socket; what a killed process has
// left is removed by the next one. What holds, line by line with the test of each, is in docs/sandbox.md.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "envs/container/engine.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

class RendezvousFolder;
class NetworkProxy;

class ContainerBackend final : public SandboxBackend {
 public:
  // `place` as Engine::find has it; `label` is a label of the containers (the run directory). kUnfit where no engine
  // answers, or this build has no program for containers.
  static Result<std::unique_ptr<ContainerBackend>> start(const std::string& place, std::string label = "");
  ~ContainerBackend() override;

  // For specs with an image, which stays the one that its name meant when it was first asked for. kUnfit where the
  // engine has no such image, or its folder holds more than an episode collects; kUnavailable where the engine is gone.
  Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& spec) override;

  const Engine& engine() const { return *engine_; }
  // Containers of processes that have ended which were removed at the start.
  size_t swept() const { return swept_; }

 private:
  struct Prepared {
    std::mutex mutex;  // held while it is made
    std::string name;  // of the prepared image; empty before
    std::vector<std::string> environment;
    bool has_beginning = false, is_small = false;
  };

  ContainerBackend(Engine engine, std::unique_ptr<RendezvousFolder> folder_of_all, std::string filter,
                   std::string label);
  void sweep();
  Result<std::shared_ptr<Prepared>> prepared(const SandboxImage& image, const Links& links);
  Status prepare(const EngineImage& image, const Links& links, Prepared& prepared);
  Status run_preparation(const std::string& image, const std::string& plan, const std::string& tag);
  std::shared_ptr<NetworkProxy> proxy();

  const std::shared_ptr<const Engine> engine_;
  const std::unique_ptr<RendezvousFolder> rendezvous_;
  const std::string filter_, label_, owner_;
  size_t swept_ = 0;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Prepared>> images_;  // by name and links
  std::shared_ptr<NetworkProxy> proxy_;                      // begins with the first sandbox that needs it
};

}  // namespace tandem::envs
