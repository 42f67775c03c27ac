// The books of a run: the state of every episode, its lease, and the batch that trains it.
//
// Pure: no clock, socket, thread or file inside. Every event is written to the log before it takes effect here, so a
// ledger that replays the log is the ledger that wrote it, and the same object runs in the coordinator, in tests, and
// in `tandem episodes`, which only reads.
//
// Every admitted episode ends in exactly one of *trained* or *dropped for a named reason*:
//   queued -> leased -> committed -> batched -> trained
// and back to queued, with the next attempt, when its worker is lost or the infrastructure failed it. Attempts count
// against an episode, but for those that another episode ended (Outcome::kCancelled), up to a bound. A batch is
// trained when the trainer says so; a trainer that comes back with an older checkpoint gets the batches since then
// again, the same episodes with the same advantages, so that nothing is trained twice in what survives.
//
// A token is trained at most plan.max_lag versions after the one that sampled it, whatever is slow: a batch is formed
// only when all that it leaves behind can still be trained in time.
//
// Memory: in full what is under way, and about a hundred bytes of every other episode; all of it under History::kFull.
// A step takes microseconds, however many episodes there were.
//
// Invariant: books().admitted == trained + dropped + in flight, after every step.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "rollout/books/actions.h"
#include "rollout/books/curriculum.h"
#include "rollout/books/events.h"
#include "rollout/books/plan.h"
#include "rollout/books/task_order.h"
#include "rollout/books/workers.h"

namespace tandem::rollout {

enum class EpisodeState : uint8_t { kQueued, kLeased, kCommitted, kBatched, kTrained, kDropped };
std::string_view to_string(EpisodeState state);

enum class Phase : uint8_t {
  kBefore,
  kTrain,
  kAfter,
  kDone,
  kBetween,  // of episodes alone: measured after what was the last step until the run was extended
  kDuring,   // of episodes alone: measured while training goes on
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
  uint32_t claims = 0;  // granted for this attempt
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

// How much a ledger keeps of episodes that are batched, trained or dropped.
enum class History : uint8_t {
  kFull,  // everything: for a ledger that fits in memory
  kOpen,  // the final state, in a few bytes: to run a run, and to read its log
};

class Ledger {
 public:
  // The first event must set the plan; events before it change nothing.
  explicit Ledger(History history = History::kFull) : history_(history) {}
  explicit Ledger(RunPlan plan, History history = History::kFull) : history_(history) { begin(std::move(plan)); }

  // Deterministic. Events that make no sense (unknown episodes, late commits, a second plan) change nothing.
  std::vector<Action> step(const Event& event) { return step(event, nullptr); }
  // The same. Under kOpen `on_settled` sees each record of which this event leaves only the state; it sees each once.
  using OnSettled = std::function<void(EpisodeRecord&& record)>;
  std::vector<Action> step(const Event& event, const OnSettled& on_settled);

  // Updates a record that a ledger of the same log passed to `on_settled`: later events may have changed its state,
  // drop reason and phase.
  EpisodeRecord as_of_now(EpisodeRecord settled) const;

  Books books() const;
  Phase phase() const { return phase_; }
  bool finished() const { return finished_; }  // nothing more will be done
  uint64_t steps_trained() const { return steps_trained_; }
  uint64_t checkpointed() const { return checkpointed_; }
  const RunPlan& plan() const { return plan_; }
  // Values of the config by path, as the log has them; empty where it has none.
  const Json& config() const { return config_; }
  // 1, and one more for each time that the run was taken over.
  uint64_t epoch() const { return epoch_; }
  std::map<std::string, uint64_t> in_states() const;
  uint64_t late_commits() const { return late_commits_; }
  const TrainBatch* batch(uint64_t step) const;
  // Training groups that a step consumed or left out: their number, those with a signal, mean reward.
  struct StepGroups {
    int groups = 0, with_signal = 0;
    double success = 0;
    std::map<std::string, std::pair<double, int>> kinds;  // sum of rewards, episodes
    std::map<std::string, std::pair<double, int>> terms;  // sum of values, episodes that have it
    std::map<std::string, BehaviourSums> behaviour;       // by kind, of the episodes of which it is known
    // Episodes that reached the end of their trunk: families, episodes, and inherited tokens and calls.
    struct Branches {
      int trunks = 0, episodes = 0;
      uint64_t inherited_tokens = 0, inherited_calls = 0;
    } branches;
    uint64_t sampled_tokens = 0, calls = 0;  // of all episodes, each with what it had of others
  };
  const StepGroups* step_groups(uint64_t step) const;
  // The trunk that an episode shares with others of its group.
  std::optional<TrunkTerms> trunk_of(const EpisodeRecord& episode) const;
  // A measurement on held-out tasks after a step, at temperature 1 and greedy: samples, and those with a reward of 1.
  struct Measurement {
    int samples = 0, passed = 0, greedy_samples = 0, greedy_passed = 0;
    uint64_t last_version = 0;  // that sampled any of it: training goes on meanwhile
    bool is_complete = false;
    double pass_rate() const { return samples > 0 ? static_cast<double>(passed) / samples : 0; }
  };
  // Measurements by step, of a run that measures while training; the one after the last step included.
  const std::map<uint64_t, Measurement>& measurements() const { return measurements_; }
  // The step that is measured while training goes on; 0: none.
  uint64_t measuring() const { return open_during_ > 0 ? during_step_ : 0; }
  // Episodes leased to `worker`, and to all workers.
  std::vector<EpisodeKey> held_by(const std::string& worker) const;
  std::vector<EpisodeKey> leased() const;
  // Whether a batch waits for groups that it would leave behind.
  bool waits_for_lag() const { return waits_for_lag_; }
  // Episodes dropped as too old, by number of sampled tokens: "256" is up to 256; "unfinished" are those revoked before
  // they ended.
  const std::map<std::string, uint64_t>& too_old() const { return too_old_; }

  // Episodes whose records are kept, in order of admission.
  class Episodes;
  Episodes episodes() const;

  // Serialises a ledger under History::kOpen, and restores it. kInvalid for bytes of another format, kCorrupt where
  // they cannot be read.
  std::string snapshot() const;
  static Result<Ledger> restore(std::string_view snapshot);

 private:
  static constexpr uint64_t kUnboundVersion = UINT64_MAX;
  static constexpr size_t kMostTerms = 64;                                // of a step, by name
  static constexpr std::string_view kTrajectoryLost = "trajectory_lost";  // the only drop of a batched episode
  struct Group {
    uint64_t first = 0;  // episode
    int size = 0, open = 0;
    Phase phase = Phase::kTrain;
    bool comparing = false;  // all have ended, and a judge compares them
    bool is_complete() const { return open == 0 && !comparing; }
    bool stale = true;                 // whether `bound` must be computed again
    uint64_t bound = kUnboundVersion;  // no token of it was or is being sampled by an older version
  };

  void begin(RunPlan plan);
  EpisodeRecord* find(const EpisodeKey& key);
  void on(const PlanSet& event);
  void on(const Extended& event);
  void on(const ConfigSet& event);
  void on(const TakenOver& event) { epoch_ = std::max(epoch_, event.epoch); }
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
  void on(const Compared& event);
  void on(const FinishRequested& event);
  void on(const CoordinatorStarted& event);

  void set_state(uint64_t episode, EpisodeState state);
  void requeue(EpisodeRecord& episode, std::string_view reason_if_last);
  void requeue_spared(EpisodeRecord& episode);
  void queue_again(EpisodeRecord& episode);
  void drop(EpisodeRecord& episode, std::string_view reason);
  void close(EpisodeRecord& episode);
  bool compare(uint64_t group);
  void admit_group(const std::string& kind, const std::string& split, uint64_t task_seed, Phase phase,
                   std::span<const float> temperatures, uint64_t min_version, uint64_t max_version);
  void admit_evaluation(Phase phase, uint64_t version);
  void measure_if_due(uint64_t step);
  void count_measured(const EpisodeRecord& episode);
  uint64_t most_during() const;
  std::set<uint64_t>& queue_of(const EpisodeRecord& episode);
  void grant_from(std::set<uint64_t>& queue);
  LeaseTerms lease(EpisodeRecord& episode, const std::string& worker);
  bool is_family(const EpisodeRecord& one, const EpisodeRecord& other) const;
  void admit_training();
  void end_training();
  void form_batches();
  std::vector<uint64_t> choose_oldest() const;
  std::vector<uint64_t> choose_in_time();
  // The groups sampled for a batch, and the rewards of their tasks.
  struct Tally {
    StepGroups groups;
    double success = 0;
    int episodes = 0;
  };
  std::vector<EpisodeRecord*> members(uint64_t group) const;
  std::vector<double> learned_rewards(std::span<EpisodeRecord* const> members) const;
  bool is_silent(std::span<EpisodeRecord* const> members, std::span<const double> rewards) const;
  void count(std::span<EpisodeRecord* const> members, Tally& tally);
  bool do_without_silent(std::span<const uint64_t> chosen);
  void form_batch(std::span<const uint64_t> chosen);
  bool binds_lag() const { return !plan_.deterministic && plan_.on_lag != OnLag::kUnbound; }
  uint64_t bound_of(const EpisodeRecord& episode) const;
  uint64_t bound_of(Group& group);
  uint64_t last_step_for(uint64_t bound) const;
  bool all_in_time(std::span<const uint64_t> left, uint64_t step);
  void drop_as_too_old(EpisodeRecord& episode);
  void drop_too_old();
  void grant();
  void steal();
  void advance();

  History history_;
  bool planned_ = false;
  RunPlan plan_;
  Json config_ = Json::object();
  uint64_t epoch_ = 1;
  Curriculum curriculum_{{}, 0};
  TaskOrder order_{{}, 0};
  Phase phase_ = Phase::kBefore;
  bool finishing_ = false, finished_ = false, evaluation_admitted_ = false;
  std::vector<std::unique_ptr<EpisodeRecord>> records_;  // by episode; null where only the state is kept
  std::vector<EpisodeState> states_;                     // the same
  std::array<uint64_t, 6> counts_{};                     // of episodes by state
  std::vector<uint64_t> settled_;                        // by this step: their records can go when it ends
  std::vector<Group> groups_;
  std::set<uint64_t> queued_;         // episodes, but for those that measure while training goes on
  std::set<uint64_t> queued_during_;  // those
  WorkerTable workers_;
  std::map<uint64_t, TrainBatch> batches_;
  std::map<uint64_t, StepGroups> step_groups_;
  std::vector<uint64_t> open_training_;  // groups admitted and not yet consumed
  uint64_t complete_ = 0;                // of these, whose episodes are all closed
  Tally left_out_;                       // what the next batch does without
  bool may_form_ = true;                 // something changed since no batch could be formed
  bool waits_for_lag_ = false;
  uint64_t newest_version_ = 0;  // that there ever was
  uint64_t train_groups_admitted_ = 0, open_phase_ = 0;
  // State of measurements while training: the step of the last one, its open groups, its leases, the last step for
  // which one was due.
  uint64_t during_step_ = 0, open_during_ = 0, leased_during_ = 0, due_during_ = 0;
  std::map<uint64_t, Measurement> measurements_;
  uint64_t steps_trained_ = 0, batches_formed_ = 0, checkpointed_ = 0, late_commits_ = 0;
  std::vector<std::string> drawn_;  // kinds for the groups to come
  uint64_t draws_ = 0;
  std::map<std::string, uint64_t> dropped_, too_old_;
  std::vector<Action> actions_;
};

// A view: a range of records, and each by its episode. Valid until the ledger's next step.
class Ledger::Episodes {
 public:
  using Records = std::vector<std::unique_ptr<EpisodeRecord>>;
  class Iterator {
   public:
    using value_type = EpisodeRecord;
    using difference_type = std::ptrdiff_t;
    Iterator(Records::const_iterator at, Records::const_iterator end) : at_(at), end_(end) { skip(); }
    const EpisodeRecord& operator*() const { return **at_; }
    Iterator& operator++() {
      ++at_;
      skip();
      return *this;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    void skip() {
      while (at_ != end_ && !*at_) ++at_;
    }
    Records::const_iterator at_, end_;
  };
  explicit Episodes(const Records& records) : records_(&records) {}
  Iterator begin() const { return {records_->begin(), records_->end()}; }
  Iterator end() const { return {records_->end(), records_->end()}; }
  // The episode's record must be kept; otherwise the behaviour is undefined.
  const EpisodeRecord& operator[](uint64_t episode) const { return *(*records_)[episode]; }

 private:
  const Records* records_;
};

inline Ledger::Episodes Ledger::episodes() const { return Episodes(records_); }

}  // namespace tandem::rollout
