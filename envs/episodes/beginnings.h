// What episodes begin with, made once for all that begin with the same.
//
// The first episode of a task has its files put into a sandbox and its setup run there; that sandbox is sealed, and
// this episode and the others of the task begin on what it held, without a copy of the files and without the setup.
// Those that come while it is made wait for it. Where a sandbox cannot be sealed (Snapshots::seal says when) each
// episode is made ready by itself, as it is without this.
//
// Thread safety: all of it. What it keeps is bounded; the least used go first, and live on where episodes are on them.
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

class Beginnings {
 public:
  explicit Beginnings(uint64_t most_bytes, Duration longest_wait = std::chrono::seconds(120))
      : most_bytes_(most_bytes), longest_wait_(longest_wait) {}

  // A sandbox of `spec` as `prepare` leaves one that was empty. Equal keys stand for equal specs and equal work. Errors
  // are those of the backend and of `prepare`; of another episode's none is passed on.
  Result<std::unique_ptr<Sandbox>> begin(SandboxBackend& backend, const SandboxSpec& spec, const ContentDigest& key,
                                         const std::function<Status(Sandbox&)>& prepare);

  struct Counters {
    uint64_t made = 0, begun = 0;  // beginnings; sandboxes that began with one
    size_t kept = 0;
    uint64_t bytes = 0;  // that they hold in memory
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

  // With the lock held, which it lets go of while it waits. Null: nobody has made it or is doing so any more.
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
