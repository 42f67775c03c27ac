// A rollout process: one engine, the agent loops of its episodes, and its connections to coordinator, trainer and
// environments.
//
// One thread does all of it in turns: messages in, episodes on, weights in, one engine step. An episode here is a small
// state machine that waits for one thing at a time, each with a deadline after which the request is sent again or the
// episode handed back as a failure of the infrastructure; it never gets a reward that nobody gave.
//
// New weights are fetched chunk by chunk while the engine samples, verified, packed on a thread of their own, and
// swapped in between two steps.
#pragma once

#include <atomic>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/file.h"
#include "envs/episodes/profile.h"
#include "kernels/stream.h"
#include "rollout/agent/conversation.h"
#include "rollout/agent/hint.h"
#include "rollout/engine/engine.h"
#include "weights_sync/object_store.h"
#include "wire/directory.h"
#include "wire/socket.h"

namespace tandem::rollout {

struct WorkerSettings {
  wire::Identity identity;
  wire::Directory directory;               // of the run's topology; the coordinator tells what changes
  std::optional<wire::Secret> secret;      // of the run's connections, where they are between machines
  std::optional<wire::Secret> env_secret;  // of environment servers on other machines
  std::string run_dir;                     // what servers of many runs know the run by
  std::string address;                     // where other rollouts hand episodes over
  std::string host = {};                   // this machine's name in the directory; empty: as the topology has it
  fs::path model;                          // version 0, with tokenizer and template
  model::WeightFormat format = model::WeightFormat::kBf16;
  EngineSettings engine;
  ConversationSettings conversation;
  model::Place place;                             // where it computes
  fs::path turns = {};                            // as TrainerSettings::turns: asleep while a step trains; empty: never
  int max_new_tokens = 128;                       // of a turn
  envs::Compaction compaction;                    // of the run's harness profile
  HintSettings hint = {};                         // that trajectories have
  int chunk_window = 8;                           // weight chunks asked for at once
  weights_sync::StoreSettings weight_store = {};  // where the trainer stores them
  bool weight_deltas = true;                      // as deltas
  std::optional<wire::Peer> relay = {};           // that weights are fetched from; nothing: the trainer
  double relay_seconds = 10;                      // patience with it
  double request_seconds = 30;                    // for an answer of the environment, then once more
  double grade_seconds = 0;                       // the same for a grade, where that may take longer
  // The same for tasks of a kind whose environment may take longer; kinds that are not named have the above.
  std::map<std::string, double> seconds_of_kind = {};
};

// The turn as it goes on elsewhere, where `said` tokens of it are sampled already.
TurnRequest rest_of_turn(TurnRequest turn, size_t said);

// Runs until the coordinator says stop, or `stop` is set.
Status run_worker(const WorkerSettings& settings, const Clock& clock, const std::atomic<bool>& stop);

}  // namespace tandem::rollout
