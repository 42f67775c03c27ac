// Prepared snapshots: the state of a sandbox after a task's setup, made once and shared by all episodes of the task.
//
// The first episode of a task puts the files into a sandbox and runs the setup; the sandbox is sealed, and all episodes
// of the task start from its snapshot, without copying files or running the setup. Concurrent episodes wait for the
// first. Where a sandbox cannot be sealed (Snapshots::seal) each episode is prepared separately.
//
// Thread safety: all functions. Memory is bounded: least recently used snapshots are dropped, and live on under the
// episodes that use them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "envs/sandbox/capabilities.h"
#include "envs/sandbox/read_cache.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

class PreparedSnapshots {
 public:
  explicit PreparedSnapshots(uint64_t most_bytes, Duration longest_wait = std::chrono::seconds(120))
      : most_bytes_(most_bytes), longest_wait_(longest_wait) {}

  // A sandbox of `spec` in the state in which `prepare` leaves an empty one. Equal keys mean equal specs and equal
  // work. Returns errors of the backend and of this caller's `prepare`, never those of another episode.
  Result<std::unique_ptr<Sandbox>> begin(SandboxBackend& backend, const SandboxSpec& spec, const ContentDigest& key,
                                         const std::function<Status(Sandbox&)>& prepare);

  struct Counters {
    uint64_t made = 0, begun = 0;  // snapshots; sandboxes started from one
    size_t kept = 0;
    uint64_t bytes = 0;  // in memory
  };
  Counters counters() const;

 private:
  enum class State { kMade, kBeingMade, kNotToBeHad };
  struct Entry {
    ContentDigest key;
    State state = State::kBeingMade;
    Snapshot snapshot = {};
    uint64_t bytes = 0;
  };

  // Requires the lock; releases it while waiting. Null where nobody has made or is making it.
  Entry* find(std::unique_lock<std::mutex>& lock, const ContentDigest& key);
  Result<std::unique_ptr<Sandbox>> make(SandboxBackend& backend, const SandboxSpec& spec, const ContentDigest& key,
                                        const std::function<Status(Sandbox&)>& prepare);
  void forget(const ContentDigest& key);
  void settle(const ContentDigest& key, const Snapshot* snapshot);

  const uint64_t most_bytes_;
  const Duration longest_wait_;
  mutable std::mutex mutex_;
  std::condition_variable settled_;
  std::list<Entry> entries_;  // the last used first
  Counters counters_;
};

}  // namespace tandem::envs
