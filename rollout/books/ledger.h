// The books of a run: which episode is where, who may run it, what is trained when.
//
// Pure: no clock, socket, thread or file inside. Every event is written to the log before it takes effect here, so a
// ledger that replays the log is the ledger that wrote it, and the same object runs in the coordinator, in tests, and
// in `tandem episodes`, which only reads.
//
// Every admitted episode ends in exactly one of *trained* or *dropped for a named reason*:
//   queued -> leased -> committed -> batched -> trained
// and back to queued, with the next attempt, when its worker is lost or the infrastructure failed it. A batch is
// trained when the trainer says so; a trainer that comes back with an older checkpoint gets the batches since then
// again, the same episodes with the same advantages, so that nothing is trained twice in what survives.
//
// Invariant: books().admitted == trained + dropped + in flight, after every step.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "rollout/books/actions.h"
#include "rollout/books/curriculum.h"
#include "rollout/books/events.h"
#include "rollout/books/plan.h"
#include "rollout/books/task_order.h"

namespace tandem::rollout {

enum class EpisodeState : uint8_t { kQueued, kLeased, kCommitted, kBatched, kTrained, kDropped };
std::string_view to_string(EpisodeState state);

enum class Phase : uint8_t {
  kBefore,
  kTrain,
  kAfter,
  kDone,
  kBetween,  // of episodes alone: measured after what was the last step until the run was extended
};
std::string_view to_string(Phase phase);

struct EpisodeRecord {
  uint64_t episode = 0;
  uint32_t attempt = 1;
  int failures = 0;          // attempts that count against it
  bool interrupted = false;  // leased while the run is being stopped: losing that attempt is nobody's failure
  uint64_t group = 0;
  Phase phase = Phase::kTrain;
  std::string kind, split;
  uint64_t task_seed = 0;
  float temperature = 1;
  uint64_t min_version = 0, max_version = 0;
  EpisodeState state = EpisodeState::kQueued;
  std::string worker;
  std::string dropped;  // the reason
  std::optional<Commit> commit;
  double advantage = 0;
  uint64_t step = 0;  // that trains it
};

struct Books {
  uint64_t admitted = 0, trained = 0, in_flight = 0;
  std::map<std::string, uint64_t> dropped;
  uint64_t dropped_total() const;
  friend bool operator==(const Books&, const Books&) = default;
};

class Ledger {
 public:
  Ledger() = default;  // its first event sets the plan; before it others change nothing
  explicit Ledger(RunPlan plan) { begin(std::move(plan)); }

  // Deterministic. Events that make no sense (unknown episodes, late commits, a second plan) change nothing.
  std::vector<Action> step(const Event& event);

  Books books() const;
  Phase phase() const { return phase_; }
  bool finished() const { return finished_; }  // nothing more will be done
  uint64_t steps_trained() const { return steps_trained_; }
  uint64_t checkpointed() const { return checkpointed_; }
  bool has_plan() const { return planned_; }
  const RunPlan& plan() const { return plan_; }
  // Values of the config by path, as the log has them; empty where it has none.
  const Json& config() const { return config_; }
  const std::deque<EpisodeRecord>& episodes() const { return episodes_; }
  std::map<std::string, uint64_t> in_states() const;
  uint64_t late_commits() const { return late_commits_; }
  const TrainBatch* batch(uint64_t step) const;
  // Training groups that a step consumed: number, with a signal, mean reward.
  struct StepGroups {
    int groups = 0, with_signal = 0;
    double success = 0;
    std::map<std::string, std::pair<double, int>> kinds;  // sum of rewards, episodes
  };
  const StepGroups* step_groups(uint64_t step) const;
  // Episodes leased to `worker`.
  std::vector<EpisodeKey> held_by(const std::string& worker) const;

 private:
  struct Group {
    uint64_t first = 0;  // episode
    int size = 0, open = 0;
    bool consumed = false;
    Phase phase = Phase::kTrain;
  };

  void begin(RunPlan plan);
  EpisodeRecord* find(const EpisodeKey& key);
  void on(const PlanSet& event);
  void on(const Extended& event);
  void on(const ConfigSet& event);
  void on(const WorkerJoined& event);
  void on(const WorkerLost& event);
  void on(const Pull& event);
  void on(const Commit& event);
  void on(const TrainerJoined& event);
  void on(const Trained& event);
  void on(const Checkpointed& event);
  void on(const Expired& event);
  void on(const Claimed& event);
  void on(const StealEnded& event);
  void on(const FinishRequested& event);
  void on(const CoordinatorStarted& event);

  void requeue(EpisodeRecord& episode, std::string_view reason_if_last);
  void drop(EpisodeRecord& episode, std::string_view reason);
  void close(EpisodeRecord& episode);
  void admit_group(const std::string& kind, const std::string& split, uint64_t task_seed, Phase phase,
                   std::span<const float> temperatures, uint64_t min_version, uint64_t max_version);
  void admit_evaluation(Phase phase, uint64_t version);
  void admit_training();
  void form_batches();
  void grant();
  void steal();
  void advance();

  bool planned_ = false;
  RunPlan plan_;
  Json config_ = Json::object();
  Curriculum curriculum_{{}, 0};
  TaskOrder order_{{}, 0};
  Phase phase_ = Phase::kBefore;
  bool finishing_ = false, finished_ = false, evaluation_admitted_ = false;
  std::deque<EpisodeRecord> episodes_;
  std::vector<Group> groups_;
  std::set<uint64_t> queued_;                // episodes
  std::map<std::string, uint32_t> credits_;  // of workers that want more
  std::set<std::string> stealing_;           // thieves whose last attempt has not ended
  std::map<uint64_t, TrainBatch> batches_;
  std::map<uint64_t, StepGroups> step_groups_;
  std::vector<uint64_t> open_training_;  // groups admitted and not yet consumed
  uint64_t train_groups_admitted_ = 0, open_phase_ = 0;
  uint64_t steps_trained_ = 0, batches_formed_ = 0, checkpointed_ = 0, late_commits_ = 0;
  std::vector<std::string> drawn_;  // kinds for the groups to come
  uint64_t draws_ = 0;
  std::map<std::string, uint64_t> dropped_;
  uint64_t trained_ = 0;
  std::vector<Action> actions_;
};

}  // namespace tandem::rollout
