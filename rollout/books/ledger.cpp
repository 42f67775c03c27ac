#include "rollout/books/ledger.h"

#include <algorithm>
#include <numeric>

#include "base/random.h"
#include "rollout/books/seeds.h"

namespace tandem::rollout {

std::string_view to_string(EpisodeState state) {
  static constexpr std::array<std::string_view, 6> kNames = {"queued",  "leased",  "committed",
                                                             "batched", "trained", "dropped"};
  return kNames[static_cast<size_t>(state)];
}

std::string_view to_string(Phase phase) {
  static constexpr std::array<std::string_view, 5> kNames = {"before", "train", "after", "done", "between"};
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
  for (EpisodeRecord& episode : episodes_) {
    if (episode.phase != Phase::kAfter) continue;
    episode.phase = Phase::kBetween;
    if (episode.state == EpisodeState::kLeased)
      actions_.push_back(Revoke{episode.worker, {episode.episode, episode.attempt}});
    if (episode.state == EpisodeState::kQueued || episode.state == EpisodeState::kLeased) drop(episode, "run_extended");
  }
  phase_ = Phase::kTrain;
  finished_ = false;
  evaluation_admitted_ = false;
}

void Ledger::on(const ConfigSet& event) {
  if (!event.values.is_object()) return;
  for (const auto& [path, value] : event.values.items()) config_[path] = value;
}

std::vector<Action> Ledger::step(const Event& event) {
  actions_.clear();
  if (!planned_ && !std::holds_alternative<PlanSet>(event)) return {};
  std::visit([&](const auto& e) { on(e); }, event);
  advance();
  return std::move(actions_);
}

EpisodeRecord* Ledger::find(const EpisodeKey& key) {
  if (key.episode >= episodes_.size() || episodes_[key.episode].attempt != key.attempt) return nullptr;
  return &episodes_[key.episode];
}

// ---- Workers ----

void Ledger::on(const WorkerJoined& event) {
  credits_[event.worker] = 0;
  stealing_.clear();
  const std::set<EpisodeKey> holding(event.holding.begin(), event.holding.end());
  for (EpisodeRecord& episode : episodes_) {
    if (episode.state != EpisodeState::kLeased || episode.worker != event.worker) continue;
    if (!holding.contains({episode.episode, episode.attempt})) requeue(episode, "worker_lost");
  }
  for (const EpisodeKey& key : event.holding) {
    const EpisodeRecord* episode = find(key);
    if (!episode || episode->state != EpisodeState::kLeased || episode->worker != event.worker) {
      actions_.push_back(Revoke{event.worker, key});
    }
  }
}

void Ledger::on(const WorkerLost& event) {
  credits_.erase(event.worker);
  stealing_.clear();  // whoever was asked may be the one that is gone
  for (EpisodeRecord& episode : episodes_) {
    if (episode.state == EpisodeState::kLeased && episode.worker == event.worker) requeue(episode, "worker_lost");
  }
}

void Ledger::on(const Pull& event) { credits_[event.worker] = event.credits; }

void Ledger::on(const Claimed& event) {
  EpisodeRecord* episode = find(event.key);
  if (episode == nullptr || episode->state != EpisodeState::kLeased || !credits_.contains(event.worker)) {
    actions_.push_back(Revoke{event.worker, event.key});
    return;
  }
  // A claim sent twice is answered twice.
  actions_.push_back(Transferred{episode->worker, event.worker, event.key});
  episode->worker = event.worker;
}

void Ledger::on(const StealEnded& event) { stealing_.erase(event.thief); }

// What is granted to a worker that is not there yet comes back as a failure when it is.
void Ledger::on(const CoordinatorStarted&) {
  credits_.clear();
  stealing_.clear();
}

void Ledger::on(const Expired& event) {
  EpisodeRecord* episode = find(event.key);
  if (episode == nullptr || episode->state != EpisodeState::kLeased) return;
  actions_.push_back(Revoke{episode->worker, event.key});
  requeue(*episode, "timeout");
}

void Ledger::requeue(EpisodeRecord& episode, std::string_view reason_if_last) {
  episode.worker.clear();
  if (!episode.interrupted && ++episode.failures >= plan_.max_attempts) return drop(episode, reason_if_last);
  ++episode.attempt;
  episode.state = EpisodeState::kQueued;
  queued_.insert(episode.episode);
}

void Ledger::drop(EpisodeRecord& episode, std::string_view reason) {
  const bool was_open = episode.state == EpisodeState::kQueued || episode.state == EpisodeState::kLeased;
  queued_.erase(episode.episode);
  episode.state = EpisodeState::kDropped;
  episode.dropped = reason;
  ++dropped_[episode.dropped];
  if (was_open) close(episode);
}

// The episode will get no other result.
void Ledger::close(EpisodeRecord& episode) {
  Group& group = groups_[episode.group];
  --group.open;
  if (group.open == 0 && group.phase != Phase::kTrain) --open_phase_;
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
  if (!is_of_policy(event.outcome) || !event.reward) {
    return requeue(*episode, to_string(event.outcome));
  }
  episode->state = EpisodeState::kCommitted;
  close(*episode);
  if (episode->phase != Phase::kTrain) {
    episode->state = EpisodeState::kDropped;
    episode->dropped = "heldout";
    ++dropped_[episode->dropped];
  }
}

// ---- What follows from any event ----

void Ledger::grant() {
  if (finishing_) return;
  for (bool given = true; given && !queued_.empty();) {
    given = false;
    for (auto& [worker, credits] : credits_) {
      if (credits == 0 || queued_.empty()) continue;
      // Siblings go together: their prompt is computed once.
      Grant grant{.worker = worker, .leases = {}};
      const uint64_t group = episodes_[*queued_.begin()].group;
      while (credits > 0 && !queued_.empty() && episodes_[*queued_.begin()].group == group) {
        EpisodeRecord& episode = episodes_[*queued_.begin()];
        queued_.erase(queued_.begin());
        episode.state = EpisodeState::kLeased;
        episode.interrupted = false;
        episode.worker = worker;
        --credits;
        grant.leases.push_back({.key = {episode.episode, episode.attempt},
                                .group = episode.group,
                                .kind = episode.kind,
                                .split = episode.split,
                                .task_seed = episode.task_seed,
                                .sample_seed = derive_seed(plan_.seed, {kSampleStream, episode.episode}),
                                .temperature = episode.temperature,
                                .min_version = episode.min_version,
                                .max_version = episode.max_version});
      }
      given = true;
      actions_.push_back(std::move(grant));
    }
  }
}

// A worker that is dry takes from the one that holds most; what can be handed over, the victim knows. Where one holds
// but one more, taking it would only change sides: two dry workers could pass the last episode to and fro for ever.
// From two on every steal brings them closer together, so there is an end to them.
void Ledger::steal() {
  if (finishing_ || plan_.steal_from == 0 || !queued_.empty()) return;
  std::map<std::string, uint32_t> held;
  for (const auto& [worker, credits] : credits_) held[worker] = 0;
  for (const EpisodeRecord& episode : episodes_) {
    if (episode.state == EpisodeState::kLeased) ++held[episode.worker];
  }
  for (const auto& [thief, credits] : credits_) {
    const bool dry = held[thief] * 4 <= credits;
    if (!dry || credits == 0 || stealing_.contains(thief)) continue;
    const auto victim =
        std::max_element(held.begin(), held.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (victim == held.end() || victim->first == thief || victim->second < held[thief] + std::max(2, plan_.steal_from))
      continue;
    const uint32_t count = std::min(credits, std::max(1u, (victim->second - held[thief]) / 2));
    stealing_.insert(thief);
    actions_.push_back(Steal{victim->first, thief, count});
  }
}

void Ledger::advance() {
  if (finished_) return;
  for (;;) {
    if (phase_ == Phase::kTrain) {
      form_batches();
      if (!finishing_) admit_training();
      if (steps_trained_ < static_cast<uint64_t>(plan_.steps)) break;
      for (EpisodeRecord& episode : episodes_) {
        const bool open = episode.state == EpisodeState::kQueued || episode.state == EpisodeState::kLeased ||
                          episode.state == EpisodeState::kCommitted;
        if (!open) continue;
        if (episode.state == EpisodeState::kLeased)
          actions_.push_back(Revoke{episode.worker, {episode.episode, episode.attempt}});
        drop(episode, "run_ended");
      }
      actions_.push_back(PhaseDone{"train"});
      phase_ = plan_.heldout_tasks > 0 ? Phase::kAfter : Phase::kDone;
      evaluation_admitted_ = false;
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
  Books books{.admitted = episodes_.size(), .trained = trained_, .in_flight = 0, .dropped = dropped_};
  books.in_flight = books.admitted - books.trained - books.dropped_total();
  return books;
}

std::map<std::string, uint64_t> Ledger::in_states() const {
  std::map<std::string, uint64_t> counts;
  for (const EpisodeRecord& episode : episodes_) ++counts[std::string(to_string(episode.state))];
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
  for (const EpisodeRecord& episode : episodes_) {
    if (episode.state == EpisodeState::kLeased && episode.worker == worker)
      keys.push_back({episode.episode, episode.attempt});
  }
  return keys;
}

}  // namespace tandem::rollout
