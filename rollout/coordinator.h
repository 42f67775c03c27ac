// The coordinator: a shell of sockets, clock and log around the ledger, which makes all decisions.
//
// Every event is appended to RUN/ledger/events.log before it takes effect; a restarted coordinator replays the log,
// which contains the plan of the run, and reconnects to the workers, which keep their episodes. It also gathers what
// the roles report: RUN/metrics.jsonl (one line a step) and the status that the supervisor watches. It keeps the run's
// directory, and tells rollouts when it has changed: environment servers come and go while the run is on.
#pragma once

#include <atomic>
#include <string>

#include "base/clock.h"
#include "base/file.h"
#include "rollout/books/ledger_log.h"
#include "rollout/judging.h"
#include "standby/replicator.h"
#include "wire/directory.h"
#include "wire/socket.h"

namespace tandem::rollout {

struct CoordinatorSettings {
  fs::path run_dir;
  std::string address;
  wire::Identity identity;
  wire::Directory directory;                 // of the run's topology
  std::optional<wire::Secret> secret = {};   // of the run's connections, where they are between machines
  double silence_seconds = 8;                // without a word a role counts as lost
  double episode_seconds = 300;              // after which an episode is taken back
  JudgingSettings judging = {};              // of groups that are complete
  std::vector<std::string> alarms_off = {};  // not raised; names of kAlarmNames
  // Null without a standby. Actions wait until the standby has their event too. Outlives the coordinator.
  standby::Replicator* standby = nullptr;
  uint64_t epoch = 1;          // of the run
  uint64_t most_unscored = 0;  // attempts in a row that may fail again without a reward; 0: any number
};

// Runs until the plan is done, or `stop` is set and everything that matters is on disk. kUnfit, with the reason, where
// more than most_unscored attempts in a row, at episodes that had failed before, got no reward.
// kUnfit where the run was taken over.
Status run_coordinator(const CoordinatorSettings& settings, const Clock& clock, const std::atomic<bool>& stop);

// The progress that the coordinator reports: phase, step, steps, late_commits, episodes.
Json progress_of(const Ledger& ledger);

}  // namespace tandem::rollout
