#include "rollout/books/ledger.h"

#include <algorithm>
#include <numeric>

#include "base/random.h"
#include "rollout/books/seeds.h"

namespace tandem::rollout {
namespace {

// Attempts that may be taken from an episode by others, as a multiple of those that count.
constexpr uint32_t kMostSpared = 25;

}  // namespace

std::string_view to_string(EpisodeState state) {
  static constexpr std::array<std::string_view, 6> kNames = {"queued",  "leased",  "committed",
                                                             "batched", "trained", "dropped"};
  return kNames[static_cast<size_t>(state)];
}

std::string_view to_string(Phase phase) {
  static constexpr std::array<std::string_view, 6> kNames = {"before", "train", "after", "done", "between", "during"};
  return kNames[static_cast<size_t>(phase)];
}

uint64_t Books::dropped_total() const {
  return std::accumulate(dropped.begin(), dropped.end(), uint64_t{0},
                         [](uint64_t sum, const auto& d) { return sum + d.second; });
}

// ---- What the run is to do ----

void Ledger::begin(RunPlan plan) {
  planned_ = true;
  plan_ = std::move(plan);
  curriculum_ = Curriculum(trainable(plan_.kinds, plan_.counts), plan_.seed);
  order_ = TaskOrder(plan_.counts, plan_.seed);
  if (plan_.deterministic) plan_.max_lag = 0;
  if (plan_.heldout_tasks == 0) phase_ = plan_.steps > 0 ? Phase::kTrain : Phase::kDone;
}

void Ledger::on(const PlanSet& event) {
  if (!planned_) begin(event.plan);
}

// Training goes on from where it was. What was measured after the old last step was measured on the way.
void Ledger::on(const Extended& event) {
  if (event.steps <= plan_.steps || event.steps > kMostSteps || trainable(plan_.kinds, plan_.counts).empty()) return;
  plan_.steps = event.steps;
  if (phase_ != Phase::kAfter && phase_ != Phase::kDone) return;
  for (Group& group : groups_) {
    if (group.phase == Phase::kAfter) group.phase = Phase::kBetween;
  }
  for (const auto& record : records_) {
    if (!record || record->phase != Phase::kAfter) continue;
    record->phase = Phase::kBetween;
    if (record->state == EpisodeState::kLeased)
      actions_.push_back(Revoke{record->worker, {record->episode, record->attempt}});
    if (record->state == EpisodeState::kQueued || record->state == EpisodeState::kLeased) drop(*record, "run_extended");
  }
  phase_ = Phase::kTrain;
  finished_ = false;
  evaluation_admitted_ = false;
  may_form_ = true;
}

void Ledger::on(const ConfigSet& event) {
  if (!event.values.is_object()) return;
  for (const auto& [path, value] : event.values.items()) config_[path] = value;
}

std::vector<Action> Ledger::step(const Event& event, const OnSettled& on_settled) {
  actions_.clear();
  if (!planned_ && !std::holds_alternative<PlanSet>(event)) return {};
  std::visit([&](const auto& e) { on(e); }, event);
  advance();
  if (history_ == History::kOpen) {
    for (const uint64_t episode : settled_) {
      if (on_settled && records_[episode]) on_settled(std::move(*records_[episode]));
      records_[episode].reset();
    }
  }
  settled_.clear();
  return std::move(actions_);
}

EpisodeRecord Ledger::as_of_now(EpisodeRecord settled) const {
  settled.state = states_[settled.episode];
  if (settled.state == EpisodeState::kDropped && settled.dropped.empty()) settled.dropped = kTrajectoryLost;
  if (settled.phase == Phase::kAfter) settled.phase = groups_[settled.group].phase;
  return settled;
}

// An episode that is under way. Of the others every event comes too late.
EpisodeRecord* Ledger::find(const EpisodeKey& key) {
  if (key.episode >= records_.size()) return nullptr;
  EpisodeRecord* const record = records_[key.episode].get();
  return record != nullptr && record->attempt == key.attempt ? record : nullptr;
}

void Ledger::set_state(uint64_t episode, EpisodeState state) {
  EpisodeState& at = states_[episode];
  EpisodeRecord* const record = records_[episode].get();
  if (at == EpisodeState::kQueued) queue_of(*record).erase(episode);
  if (record != nullptr && record->phase == Phase::kDuring) {
    leased_during_ -= at == EpisodeState::kLeased;
    leased_during_ += state == EpisodeState::kLeased;
  }
  if (at == EpisodeState::kLeased && state != at && record != nullptr) workers_.release(record->worker, episode);
  --counts_[static_cast<size_t>(at)];
  ++counts_[static_cast<size_t>(state)];
  at = state;
  if (record != nullptr) record->state = state;
  if (state == EpisodeState::kQueued) queue_of(*record).insert(episode);
  if (state >= EpisodeState::kBatched) settled_.push_back(episode);
}

// ---- Workers ----

void Ledger::on(const WorkerJoined& event) {
  workers_.set_credits(event.worker, 0);
  workers_.end_thefts();
  const std::set<EpisodeKey> holding(event.holding.begin(), event.holding.end());
  for (const EpisodeKey& key : held_by(event.worker)) {
    if (!holding.contains(key)) requeue(*find(key), "worker_lost");
  }
  for (const EpisodeKey& key : event.holding) {
    const EpisodeRecord* episode = find(key);
    if (!episode || episode->state != EpisodeState::kLeased || episode->worker != event.worker) {
      actions_.push_back(Revoke{event.worker, key});
    }
  }
}

void Ledger::on(const WorkerLost& event) {
  workers_.leave(event.worker);
  workers_.end_thefts();  // whoever was asked may be the one that is gone
  for (const EpisodeKey& key : held_by(event.worker)) requeue(*find(key), "worker_lost");
}

void Ledger::on(const Pull& event) { workers_.set_credits(event.worker, event.credits); }

void Ledger::on(const Claimed& event) {
  EpisodeRecord* episode = find(event.key);
  if (episode == nullptr || episode->state != EpisodeState::kLeased) {
    actions_.push_back(Revoke{event.worker, event.key});
    return;
  }
  if (!workers_.is_present(event.worker)) return;  // it asks again when it has joined
  const bool is_repeated =
      event.worker == episode->worker && event.claims && episode->claims == uint64_t{*event.claims} + 1;
  if (is_repeated) {
    actions_.push_back(Transferred{event.worker, event.worker, event.key, episode->claims});
    return;
  }
  // An offer that somebody has taken, or that its maker has taken back, holds what is older than the episode.
  if (event.claims && *event.claims != episode->claims) {
    actions_.push_back(ClaimRefused{event.worker, event.key, episode->claims});
    return;
  }
  actions_.push_back(Transferred{episode->worker, event.worker, event.key, ++episode->claims});
  workers_.hand_over(episode->worker, event.worker, episode->episode);
  episode->worker = event.worker;
}

void Ledger::on(const StealEnded& event) { workers_.end_theft(event.thief); }

// What is granted to a worker that is not there yet comes back as a failure when it is.
void Ledger::on(const CoordinatorStarted&) {
  workers_.leave_all();
  workers_.end_thefts();
  for (const uint64_t group : open_training_) {
    if (groups_[group].comparing) compare(group);  // who was asked is gone
  }
}

void Ledger::on(const Expired& event) {
  EpisodeRecord* episode = find(event.key);
  if (episode == nullptr || episode->state != EpisodeState::kLeased) return;
  actions_.push_back(Revoke{episode->worker, event.key});
  requeue(*episode, "timeout");
}

void Ledger::requeue(EpisodeRecord& episode, std::string_view reason_if_last) {
  if (!episode.interrupted && ++episode.failures >= plan_.max_attempts) {
    drop(episode, reason_if_last);
    episode.worker.clear();
    return;
  }
  queue_again(episode);
}

// Another episode took what it had: nothing that counts against it, unless it goes on like this for ever.
void Ledger::requeue_spared(EpisodeRecord& episode) {
  if (episode.attempt >= kMostSpared * static_cast<uint32_t>(plan_.max_attempts)) {
    if (episode.commit) episode.commit->outcome = Outcome::kInfraError;
    return requeue(episode, to_string(Outcome::kInfraError));
  }
  queue_again(episode);
}

void Ledger::queue_again(EpisodeRecord& episode) {
  set_state(episode.episode, EpisodeState::kQueued);
  episode.worker.clear();
  ++episode.attempt;
  episode.claims = 0;
  groups_[episode.group].stale = true;
  may_form_ = true;
}

void Ledger::drop(EpisodeRecord& episode, std::string_view reason) {
  const bool was_open = episode.state == EpisodeState::kQueued || episode.state == EpisodeState::kLeased;
  set_state(episode.episode, EpisodeState::kDropped);
  episode.dropped = reason;
  ++dropped_[episode.dropped];
  groups_[episode.group].stale = true;
  may_form_ = true;
  if (was_open) close(episode);
}

// The episode will get no other result.
void Ledger::close(EpisodeRecord& episode) {
  Group& group = groups_[episode.group];
  group.stale = true;
  if (--group.open > 0) return;
  if (group.phase == Phase::kTrain) {
    if (plan_.compare && compare(episode.group)) return;
    ++complete_;
    may_form_ = true;
  } else {
    uint64_t& open = group.phase == Phase::kDuring ? open_during_ : open_phase_;
    if (--open > 0 || group.phase == Phase::kBefore || group.phase == Phase::kBetween) return;
    // Where training has ended meanwhile, what is left is dropped, and the measurement is none.
    const uint64_t step = group.phase == Phase::kDuring ? during_step_ : static_cast<uint64_t>(plan_.steps);
    const auto found = measurements_.find(step);
    if (step == 0 || found == measurements_.end()) return;
    found->second.is_complete = true;
    actions_.push_back(HeldoutDone{step});
  }
}

void Ledger::on(const Commit& event) {
  EpisodeRecord* episode = find(event.key);
  if (episode == nullptr || episode->state != EpisodeState::kLeased || episode->worker != event.worker) {
    ++late_commits_;  // a lease that was lost, or a commit sent twice: it had its effect, or must have none
    actions_.push_back(Acknowledge{event.worker, event.key});
    return;
  }
  actions_.push_back(Acknowledge{event.worker, event.key});
  episode->commit = event;
  if (event.outcome == Outcome::kCancelled) return requeue_spared(*episode);
  if (!is_of_policy(event.outcome) || !event.reward) {
    return requeue(*episode, to_string(event.outcome));
  }
  set_state(episode->episode, EpisodeState::kCommitted);
  if (plan_.heldout_every > 0 && (episode->phase == Phase::kDuring || episode->phase == Phase::kAfter))
    count_measured(*episode);
  close(*episode);
  if (episode->phase != Phase::kTrain) {
    drop(*episode, "heldout");
  } else if (binds_lag() && last_step_for(bound_of(*episode)) <= batches_formed_) {
    drop_as_too_old(*episode);  // it says that it is older than its lease allowed
  }
}

// ---- What follows from any event ----

std::set<uint64_t>& Ledger::queue_of(const EpisodeRecord& episode) {
  return episode.phase == Phase::kDuring ? queued_during_ : queued_;
}

// How many episodes may measure at once while training goes on: a quarter of what all workers hold and want, so that
// the training's next episodes find room. A deterministic run waits for the measurement anyway.
uint64_t Ledger::most_during() const {
  uint64_t room = 0;
  for (const auto& [name, worker] : workers_.all()) {
    if (worker.present) room += worker.credits + worker.leased.size();
  }
  return plan_.deterministic ? room : std::max<uint64_t>(room / 4, 1);
}

void Ledger::grant() {
  if (finishing_) return;
  grant_from(queued_);
  if (!queued_during_.empty()) grant_from(queued_during_);
}

LeaseTerms Ledger::lease(EpisodeRecord& episode, const std::string& worker) {
  set_state(episode.episode, EpisodeState::kLeased);
  episode.interrupted = false;
  episode.worker = worker;
  // What waited in the queue need not be sampled by older weights than what is admitted now.
  if (binds_lag() && episode.phase == Phase::kTrain)
    episode.min_version = std::max(episode.min_version, newest_version_);
  return {.key = {episode.episode, episode.attempt},
          .group = episode.group,
          .kind = episode.kind,
          .split = episode.split,
          .task_seed = episode.task_seed,
          .sample_seed = derive_seed(plan_.seed, {kSampleStream, episode.episode}),
          .temperature = episode.temperature,
          .min_version = episode.min_version,
          .max_version = episode.max_version,
          .trunk = trunk_of(episode),
          .truncation = episode.phase == Phase::kTrain ? plan_.truncation : Truncation()};
}

std::optional<TrunkTerms> Ledger::trunk_of(const EpisodeRecord& episode) const {
  if (episode.phase != Phase::kTrain) return std::nullopt;
  const Group& group = groups_[episode.group];
  return rollout::trunk_of(plan_, group.first, group.size, episode.episode);
}

bool Ledger::is_family(const EpisodeRecord& one, const EpisodeRecord& other) const {
  const auto of_one = trunk_of(one), of_other = trunk_of(other);
  return of_one && of_other && of_one->family == of_other->family;
}

void Ledger::grant_from(std::set<uint64_t>& queue) {
  const bool is_during = &queue == &queued_during_;
  const uint64_t most = is_during ? most_during() : UINT64_MAX;
  const auto may = [&] { return !queue.empty() && (!is_during || leased_during_ < most); };
  while (may()) {
    const WorkerTable::Worker* worker = workers_.first_wanting();
    if (worker == nullptr) return;
    // In turns: each gets siblings of one group, for their prompt is computed once.
    for (; worker != nullptr && may(); worker = workers_.next_wanting(*worker)) {
      Grant grant{.worker = worker->name, .leases = {}};
      std::vector<uint64_t> granted;
      const uint64_t group = records_[*queue.begin()]->group;
      while (may()) {
        EpisodeRecord& episode = *records_[*queue.begin()];
        if (episode.group != group) break;
        // Those that begin as one stay together: all but one of them wait for that one.
        const bool joins = !granted.empty() && plan_.branch.ways > 1 && is_family(episode, *records_[granted.back()]);
        if (granted.size() >= worker->credits && !joins) break;
        grant.leases.push_back(lease(episode, worker->name));
        granted.push_back(episode.episode);
      }
      groups_[group].stale = true;
      workers_.lease(*worker, granted);
      actions_.push_back(std::move(grant));
    }
  }
}

// A worker that is dry takes from the one that holds most; what can be handed over, the victim knows. Where one holds
// but one more, taking it would only change sides: two dry workers could pass the last episode to and fro for ever.
// From two on every steal brings them closer together, so there is an end to them.
void Ledger::steal() {
  if (finishing_ || plan_.steal_from == 0 || !queued_.empty()) return;
  for (const auto& theft : workers_.start_thefts(static_cast<uint32_t>(std::max(2, plan_.steal_from))))
    actions_.push_back(Steal{theft.victim->name, theft.thief->name, theft.count});
}

void Ledger::advance() {
  if (finished_) return;
  for (;;) {
    if (phase_ == Phase::kTrain) {
      form_batches();
      if (!finishing_) admit_training();
      if (steps_trained_ < static_cast<uint64_t>(plan_.steps)) break;
      end_training();
      continue;
    }
    if (phase_ == Phase::kDone) {
      // A trainer came back and catches up, or saves its last step: what it learned is the result of the run.
      if (std::min(steps_trained_, checkpointed_) < static_cast<uint64_t>(plan_.steps)) return;
      finished_ = true;
      actions_.push_back(Finish{"done"});
      return;
    }
    if (!evaluation_admitted_) {
      admit_evaluation(phase_, phase_ == Phase::kBefore ? 0 : static_cast<uint64_t>(plan_.steps));
      evaluation_admitted_ = true;
    }
    if (open_phase_ > 0) break;
    actions_.push_back(PhaseDone{std::string(to_string(phase_))});
    phase_ = phase_ == Phase::kBefore && plan_.steps > 0 ? Phase::kTrain : Phase::kDone;
  }
  grant();
  steal();
}

// ---- Reading ----

Books Ledger::books() const {
  Books books{.admitted = states_.size(),
              .trained = counts_[static_cast<size_t>(EpisodeState::kTrained)],
              .in_flight = 0,
              .dropped = dropped_};
  books.in_flight = books.admitted - books.trained - books.dropped_total();
  return books;
}

std::map<std::string, uint64_t> Ledger::in_states() const {
  std::map<std::string, uint64_t> counts;
  for (size_t state = 0; state < counts_.size(); ++state) {
    if (counts_[state] > 0) counts[std::string(to_string(static_cast<EpisodeState>(state)))] = counts_[state];
  }
  return counts;
}

const TrainBatch* Ledger::batch(uint64_t step) const {
  const auto found = batches_.find(step);
  return found == batches_.end() ? nullptr : &found->second;
}

const Ledger::StepGroups* Ledger::step_groups(uint64_t step) const {
  const auto found = step_groups_.find(step);
  return found == step_groups_.end() ? nullptr : &found->second;
}

std::vector<EpisodeKey> Ledger::held_by(const std::string& worker) const {
  std::vector<EpisodeKey> keys;
  if (const auto* found = workers_.find(worker)) {
    for (const uint64_t episode : found->leased) keys.push_back({episode, records_[episode]->attempt});
  }
  return keys;
}

std::vector<EpisodeKey> Ledger::leased() const {
  std::vector<EpisodeKey> keys;
  for (const auto& [name, worker] : workers_.all()) {
    for (const uint64_t episode : worker.leased) keys.push_back({episode, records_[episode]->attempt});
  }
  return keys;
}

}  // namespace tandem::rollout
