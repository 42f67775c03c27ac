// The trainer's order of work: which batch is trained next, when a checkpoint is written, what the coordinator is told,
// when the process may go. A pure machine: events in, actions out; no sockets, threads or clocks.
//
// Batches are trained in order, each once, whatever is lost, doubled or late on the way: a batch of a step that is done
// is ignored, as is one beyond the plan; one that comes too early waits. One piece of work is under way at a time; its
// end is an event.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "rollout/books/actions.h"

namespace tandem::trainer {

using Batch = rollout::TrainBatch;

class WorkOrder {
 public:
  struct Plan {
    uint64_t steps = 0;  // of the run; the last one has a checkpoint
    uint64_t checkpoint_every = 25;
    uint64_t measured_every = 0;  // after these steps held-out tasks are measured: each has a checkpoint; 0: none
  };
  // `version`: steps that are done and saved.
  WorkOrder(const Plan& plan, uint64_t version, Time now)
      : plan_(plan), version_(version), saved_(version), work_ended_(now) {}

  // Events.
  struct Ordered {  // by the coordinator
    Batch batch;
  };
  struct Finish {};  // asked by the coordinator: save, and say so; asked again where that was not heard
  struct Stop {};    // asked by the coordinator
  struct Leave {};   // asked by a signal: save and go
  // The coordinator, perhaps a restarted one, has our hello: earlier orders are void.
  struct Introduced {};
  struct Trained {
    std::string report;
  };
  struct GivenUp {};  // a step was not taken, since the process is to go; its batch stays
  struct Saved {};
  struct Turn {  // of the work loop
    bool coordinator_known = false;
  };
  using Event = std::variant<Ordered, Finish, Stop, Leave, Introduced, Trained, GivenUp, Saved, Turn>;

  // Actions.
  struct Train {
    Batch batch;
  };
  struct Save {
    uint64_t version = 0;
  };
  struct AnnounceWeights {};
  struct ReportStep {
    uint64_t step = 0;
    std::string report;
  };
  struct ReportCheckpoint {
    uint64_t version = 0;
  };
  struct Quit {};
  using Action = std::variant<Train, Save, AnnounceWeights, ReportStep, ReportCheckpoint, Quit>;

  std::vector<Action> step(Event event, Time now);

  uint64_t version() const { return version_; }
  std::string doing(Time now) const;  // for people
  double idle_seconds() const { return idle_seconds_; }
  size_t waiting() const { return batches_.size(); }  // batches

 private:
  void take(Event event, Time now, std::vector<Action>& actions);
  void proceed(Time now, std::vector<Action>& actions);
  void begin(std::string what, Time now);
  void end(Time now);
  void save(Time now, std::vector<Action>& actions);

  const Plan plan_;
  std::map<uint64_t, Batch> batches_;        // not yet trained
  std::map<uint64_t, std::string> reports_;  // of the newest steps, for a coordinator that missed them
  uint64_t version_, saved_;
  bool busy_ = false, finishing_ = false, leaving_ = false, announced_save_ = false, quit_ = false;
  bool coordinator_known_ = false;
  std::string working_on_;
  Time work_started_{}, work_ended_;
  double idle_seconds_ = 0;
};

}  // namespace tandem::trainer
