// The trainer process: stores trajectories, trains the batches that the coordinator orders, publishes new weights.
//
// Messages are served on one thread while steps, digests and checkpoints run on a second and trajectories go to the
// disk and come back on a third, so a rollout never waits for a step to have its trajectory stored, nor for the disk to
// have a chunk of weights sent. A trajectory is acknowledged when it is on disk; those that come in meanwhile share the
// next wait. Trajectories that exceed the memory for them are not acknowledged and are sent again. Batches are trained
// in order, each once; a trainer that starts again goes on from its newest checkpoint and is sent what followed.
//
// A teacher behind an endpoint is asked about a batch before its step, on a fourth thread. What it says is in the run
// directory before the step is taken (trainer/remote_teacher.h), and goes to the other ranks with the samples.
//
// Among several ranks this is the first, whom coordinator and rollouts speak with; the others (trainer/follower.h) do
// their share of each step when it says so. Where one of them is lost, this process ends with kUnavailable, is started
// again, and goes on from its newest checkpoint with all that come.
//
// A version of the weights is the number of steps behind it. It is announced when the step is done; rollouts fetch it
// when they like, as what changed since the one that they hold where that is less.
#pragma once

#include <atomic>
#include <string>

#include "base/clock.h"
#include "standby/replicator.h"
#include "trainer/learn/learner.h"
#include "trainer/team.h"
#include "weights_sync/history.h"
#include "weights_sync/object_store.h"
#include "wire/socket.h"

namespace tandem::trainer {

struct TrainerSettings {
  fs::path run_dir;
  fs::path model;  // version 0
  model::WeightFormat format = model::WeightFormat::kBf16;
  std::string address;  // where rollouts reach it
  std::string coordinator;
  wire::Identity identity;
  std::optional<wire::Secret> secret = {};  // of the run's connections, where they are between machines
  TeamSettings team;
  OptimizerSettings optimizer;
  Algorithm algorithm;
  fs::path teacher = {};         // of algorithm.teacher; empty: none
  std::string teacher_key = {};  // of the endpoint of algorithm.teacher; empty: none
  model::Place place;            // where it computes
  // Whose turn the device is, where engines there sleep while a step trains; empty: they do not.
  fs::path turns = {};
  int steps = 0;  // of the run: after the last one the model is exported
  int checkpoint_every = 25;
  int measured_every = 0;       // as tasks.heldout_every: after these steps there is a checkpoint, too
  size_t kept_checkpoints = 2;  // the newest
  int audit_every = 1;          // versions between two audits of what is published (weights_sync/audit.h); 0: none
  weights_sync::HistorySettings weights;
  weights_sync::StoreSettings weight_store = {};  // where rollouts may read them
  // Null without a standby. Nothing is acknowledged before the standby has it too. Outlives the trainer.
  standby::Replicator* standby = nullptr;
};

// Runs until the coordinator says stop. On `stop` or a Stop message with reason "finish" it ends the step it is in,
// saves a checkpoint and says so before it goes.
Status run_trainer(const TrainerSettings& settings, const Clock& clock, const std::atomic<bool>& stop);

}  // namespace tandem::trainer
