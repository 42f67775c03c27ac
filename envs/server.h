// The environment server: episodes in sandboxes, for rollouts that ask over the wire.
//
// A rollout acquires an episode (a task made from its spec, in a sandbox of its own), sends what the model said turn by
// turn, and has it scored. Calls run on a few threads, so one that waits for a command holds nobody up. Every request
// may be sent again: the same turn is answered again, not run again. An episode that nobody has asked about for a while
// is let go.
//
// Operators (`tandem envs`) ask over the same socket; no episode waits for them.
//
// Errors come back as Failed: not_found for a lease of another life of this server, exhausted where the queue is full.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "base/clock.h"
#include "envs/episode.h"
#include "envs/fleet/watched_backend.h"
#include "envs/sandbox/read_cache.h"
#include "wire/socket.h"

namespace tandem::envs {

// What a spec stands for. Called from several threads.
using MakeTask = std::function<Result<Task>(const TaskSpec&)>;

struct ServerSettings {
  std::string address;
  wire::Identity identity;
  int threads = 4;
  size_t queue = 4096;        // requests that wait
  double idle_seconds = 180;  // then an episode is let go
  MakeTask make_task = envs::make_task;
  EpisodeOptions episode;
  WatchedBackend* fleet = nullptr;        // what operators are answered from (envs/fleet); null: they are refused
  const ReadCache* read_cache = nullptr;  // whose figures operators are told; may be null
};

struct ServerCounters {
  uint64_t acquired = 0, calls = 0, scored = 0, failed = 0, reaped = 0, live = 0, waiting = 0;
  double busy_seconds = 0;  // of all threads together
};

// Serves until `stop`. `tick` is called in every turn of the loop with what it is doing.
Status serve(const ServerSettings& settings, SandboxBackend& backend, const Clock& clock, const std::atomic<bool>& stop,
             const std::function<void(const std::string& doing, const ServerCounters&)>& tick);

}  // namespace tandem::envs
