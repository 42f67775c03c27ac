// Sandboxes of Linux namespaces, which we make ourselves or bubblewrap makes for us.
//
// Each has its own user, processes, mounts, network (none but loopback, and a proxy at it where the spec opens hosts),
// System V objects, host name; a system call filter; no capability. Its first process runs the library of tools and is
// spoken to over one socket. What holds, line by line with the test of each, is in docs/sandbox.md.
//
// A spawner that was killed takes its sandboxes with it; another is started when the next sandbox is asked for, as
// often as a RestartBudget allows.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "envs/sandbox/isolation.h"
#include "envs/sandbox/restart_budget.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

class LayerHolder;
class NetworkProxy;
class Spawner;

class NamespaceBackend final : public SandboxBackend {
 public:
  // Starts the spawner; `label` is shown in its command line and that of its sandboxes (the run directory). kUnfit,
  // with what is missing, where this machine cannot isolate; much of that is known with the first sandbox only.
  static Result<std::unique_ptr<NamespaceBackend>> start(IsolatedBy by, std::string label = "");
  ~NamespaceBackend() override;  // ends all sandboxes that are left

  // kUnavailable where a spawner or the new sandbox was killed over and over while it was made, or what it was to begin
  // on is lost.
  Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& spec) override;

  std::string_view kind() const override { return by_ == IsolatedBy::kBubblewrap ? "bubblewrap" : "namespaces"; }
  uint64_t spawners_started() const override { return spawners_started_; }

 private:
  NamespaceBackend(IsolatedBy by, std::shared_ptr<Spawner> spawner, std::string label);
  Result<std::shared_ptr<Spawner>> live_spawner();
  // Each begins with the first sandbox that needs it.
  std::shared_ptr<NetworkProxy> proxy();
  std::shared_ptr<LayerHolder> holder();  // null where there can be none
  Result<std::shared_ptr<const FileLayer>> layer_of(const BaseTree& base);
  // None where we are not root, or there is no holder: then the sandbox makes its workspace itself.
  Result<FileLayers> layers_of(const FolderBelow& below);

  const IsolatedBy by_;
  const std::string label_;
  std::mutex mutex_;
  std::shared_ptr<Spawner> spawner_;
  std::shared_ptr<NetworkProxy> proxy_;
  std::shared_ptr<LayerHolder> holder_;
  bool can_hold_ = true;
  std::map<std::string, std::shared_ptr<const FileLayer>> bases_;  // by digest
  RestartBudget restarts_;
  std::string why_not_started_;  // for messages; empty where the last start was none in vain
  std::atomic<uint64_t> spawners_started_{1};
};

}  // namespace tandem::envs
