// Sandboxes of Linux namespaces: the one way in which calls of a model are run.
//
// Each has its own user, processes, mounts, network (none but loopback), System V objects, host name; a system call
// filter; no capability. Its first process runs the library of tools and is spoken to over one socket. What holds, line
// by line with the test of each, is in docs/sandbox.md.
#pragma once

#include <memory>
#include <string>

#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

class Spawner;

class NamespaceBackend final : public SandboxBackend {
 public:
  // Starts the spawner; `label` is shown in its command line and that of its sandboxes (the run directory). kUnfit,
  // with what is missing, where this machine cannot isolate; then nothing is run at all.
  static Result<std::unique_ptr<NamespaceBackend>> start(std::string label = "");
  ~NamespaceBackend() override;  // ends all sandboxes that are left

  Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& spec) override;

 private:
  explicit NamespaceBackend(std::unique_ptr<Spawner> spawner);
  std::unique_ptr<Spawner> spawner_;
};

}  // namespace tandem::envs
