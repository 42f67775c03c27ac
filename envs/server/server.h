// The environment server: episodes in sandboxes, for rollouts that ask over the wire.
//
// A rollout acquires an episode (a task made from its spec, in a sandbox of its own), sends what the model said turn by
// turn, and has it scored. Calls run on a few threads, so one that waits for a command holds nobody up. Every request
// may be sent again: the same turn is answered again, not run again. An episode without requests for `idle_seconds` is
// released.
//
// A server has one run, or is a host of environments for every run that names it (rollouts say whose episode they
// ask for). Runs of a host take turns, have quotas, and see nothing of each other.
//
// Operators (`tandem envs`) ask over the same socket; no episode waits for them.
//
// Errors come back as Failed: not_found for a lease of another life of this server or of another run, exhausted where
// there is no room: the run's queue is full, it has as many episodes as it may, or no new ones are taken any more.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "envs/episodes/episode.h"
#include "envs/fleet/watched_backend.h"
#include "envs/foreign/foreign_environments.h"
#include "envs/rewards/rewards.h"
#include "envs/sandbox/read_cache.h"
#include "envs/tasks/workspace/kinds.h"
#include "wire/socket.h"

namespace tandem::envs {

// Makes the task of a spec. Called from several threads.
using MakeTask = std::function<Result<Task>(const TaskSpec&)>;

// The terms of one run: how its environments are made and graded.
struct RunTerms {
  std::string name;  // for operators
  MakeTask make_task = envs::make_task;
  EpisodeOptions episode;
  std::shared_ptr<Rewards> rewards = {};              // of its own; null: the grade is the task's alone
  std::shared_ptr<ForeignEnvironments> foreign = {};  // whose kinds they are; null: none
};
// Returns the terms of this run. Called from several threads; may read files.
using OpenRun = std::function<Result<RunTerms>(uint64_t run, const std::string& run_dir)>;

struct ServerSettings {
  std::string address;
  wire::Identity identity;
  int threads = 4;
  size_t queue = 4096;        // requests of a run that wait
  double idle_seconds = 180;  // then an episode is let go
  int score_threads = 4;      // grades of runs with rewards of their own, which nobody else waits for
  MakeTask make_task = envs::make_task;
  EpisodeOptions episode;
  std::shared_ptr<Rewards> rewards = {};
  std::shared_ptr<ForeignEnvironments> foreign = {};
  WatchedBackend* fleet = nullptr;        // what operators are answered from (envs/fleet); null: they are refused
  const ReadCache* read_cache = nullptr;  // whose figures operators are told; may be null
  // For a host of many runs, whose identity has kEveryRun; replaces make_task, episode, rewards and foreign.
  OpenRun open_run;
  const wire::Secret* secret = nullptr;      // for tcp:// beyond this machine
  size_t most_episodes = SIZE_MAX;           // at once, of all runs
  size_t most_episodes_of_a_run = SIZE_MAX;  // at once
};

struct ServerCounters {
  uint64_t acquired = 0, calls = 0, scored = 0, failed = 0, reaped = 0, live = 0, waiting = 0;
  double busy_seconds = 0;  // of all threads together
};

// Flags that tell a server to end.
struct StopFlags {
  std::atomic<bool> now{false};
  std::atomic<bool> drain{false};  // take no new episodes, and end when the last one is let go
};

// Serves until it is told to stop. `on_address` is told where it can be reached; `tick` is called in every turn of the
// loop with what it is doing.
Status serve(const ServerSettings& settings, SandboxBackend& backend, const Clock& clock, const StopFlags& stop,
             const std::function<void(const std::string& doing, const ServerCounters&)>& tick,
             const std::function<void(const std::string& address)>& on_address = {});

}  // namespace tandem::envs
