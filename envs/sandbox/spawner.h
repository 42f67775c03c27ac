// The process that makes sandboxes: small, of one thread, and the parent of all of them.
//
// It is this very program, started again with a hidden argument that is seen before main, so that it never forks a
// process that has threads. It ends when its socket closes, however the other side died, and every sandbox ends with
// it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "base/file.h"
#include "base/status.h"
#include "envs/sandbox/isolation.h"
#include "envs/sandbox/sandbox.h"
#include "envs/sandbox/spawned.h"

namespace tandem::envs {

// Thread safety: spawn may be called from several threads; they take turns.
class Spawner {
 public:
  // kUnfit, naming what is missing, where this machine cannot isolate. `label` is shown in the command line of the
  // spawner and of every sandbox, so that those of one run can be told from others.
  static Result<std::unique_ptr<Spawner>> start(IsolatedBy by, std::string label);
  ~Spawner();

  // `trees`: the socket where workspace and /tmp come from, where it begins on layers.
  Result<SpawnedSandbox> spawn(const SandboxSpec& spec, const FileDescriptor& trees = {});

  // Whether it has ended, or did not answer in time and was ended: every spawn fails from then on, and its sandboxes
  // are gone.
  bool lost() const { return lost_; }

 private:
  Spawner(FileDescriptor socket, int process) : socket_(std::move(socket)), process_(process) {}

  void reap();

  std::mutex mutex_;
  std::atomic<bool> lost_{false};
  FileDescriptor socket_;
  int process_;
};

}  // namespace tandem::envs
