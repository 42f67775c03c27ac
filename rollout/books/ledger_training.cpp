// What the ledger admits, and what a trainer that comes back gets again.
#include <algorithm>
#include <utility>

#include "base/random.h"
#include "rollout/books/learned_reward.h"
#include "rollout/books/ledger.h"
#include "rollout/books/seeds.h"

namespace tandem::rollout {

// ---- Training ----

void Ledger::on(const TrainerJoined& event) {
  finishing_ = false;  // the run goes on: its trainer is back
  // What it trained and could not report.
  while (steps_trained_ < event.step && batches_.contains(steps_trained_ + 1)) on(Trained{steps_trained_ + 1, {}});
  // What it trained beyond its checkpoint is gone with it; the same batches bring it back.
  for (auto at = batches_.upper_bound(event.step); at != batches_.end(); ++at) {
    if (at->first <= steps_trained_) {
      for (const BatchEntry& entry : at->second.entries) {
        if (states_[entry.key.episode] == EpisodeState::kTrained) set_state(entry.key.episode, EpisodeState::kBatched);
      }
    }
    actions_.push_back(at->second);
  }
  steps_trained_ = std::min(steps_trained_, event.step);
  checkpointed_ = std::min(checkpointed_, event.step);
}

void Ledger::on(const Trained& event) {
  const auto found = batches_.find(event.step);
  if (found == batches_.end() || event.step != steps_trained_ + 1) return;
  const std::set<EpisodeKey> missing(event.missing.begin(), event.missing.end());
  for (const BatchEntry& entry : found->second.entries) {
    const uint64_t episode = entry.key.episode;
    if (states_[episode] != EpisodeState::kBatched) continue;
    if (!missing.contains(entry.key)) {
      set_state(episode, EpisodeState::kTrained);
      continue;
    }
    set_state(episode, EpisodeState::kDropped);
    ++dropped_[std::string(kTrajectoryLost)];
    if (EpisodeRecord* const record = records_[episode].get()) record->dropped = kTrajectoryLost;
  }
  steps_trained_ = event.step;
  newest_version_ = std::max(newest_version_, steps_trained_);
  actions_.emplace_back(StepDone{event.step});
  measure_if_due(event.step);
}

void Ledger::on(const Checkpointed& event) { checkpointed_ = std::max(checkpointed_, event.step); }

void Ledger::on(const FinishRequested&) {
  finishing_ = true;
  for (const EpisodeKey& key : leased()) find(key)->interrupted = true;
}

// What is under way when the last step is trained is not needed any more.
void Ledger::end_training() {
  due_during_ = std::max(due_during_, static_cast<uint64_t>(plan_.steps));
  if (open_during_ > 0) measurements_.erase(std::exchange(during_step_, 0));
  for (const auto& record : records_) {
    if (!record || record->state > EpisodeState::kCommitted) continue;
    if (record->state == EpisodeState::kLeased)
      actions_.push_back(Revoke{record->worker, {record->episode, record->attempt}});
    drop(*record, "run_ended");
  }
  open_training_.clear();
  complete_ = 0;
  waits_for_lag_ = false;
  actions_.push_back(PhaseDone{"train"});
  phase_ = plan_.heldout_tasks > 0 ? Phase::kAfter : Phase::kDone;
  evaluation_admitted_ = false;
}

// ---- Admission ----

void Ledger::admit_group(const std::string& kind, const std::string& split, uint64_t task_seed, Phase phase,
                         std::span<const float> temperatures, uint64_t min_version, uint64_t max_version) {
  const uint64_t group = groups_.size();
  groups_.push_back({.first = records_.size(),
                     .size = static_cast<int>(temperatures.size()),
                     .open = static_cast<int>(temperatures.size()),
                     .phase = phase});
  for (const float temperature : temperatures) {
    const uint64_t id = records_.size();
    records_.push_back(std::make_unique<EpisodeRecord>(EpisodeRecord{.episode = id,
                                                                     .group = group,
                                                                     .phase = phase,
                                                                     .kind = kind,
                                                                     .split = split,
                                                                     .task_seed = task_seed,
                                                                     .temperature = temperature,
                                                                     .min_version = min_version,
                                                                     .max_version = max_version}));
    states_.push_back(EpisodeState::kQueued);
    ++counts_[static_cast<size_t>(EpisodeState::kQueued)];
    auto& queue = queue_of(*records_.back());
    queue.insert(queue.end(), id);
  }
}

// Held-out tasks are the same for every run, whatever its seed.
void Ledger::admit_evaluation(Phase phase, uint64_t version) {
  std::vector<float> temperatures(plan_.heldout_samples, 1.0f);
  temperatures.push_back(0.0f);
  const bool is_during = phase == Phase::kDuring;
  // Beside the training no engine keeps the weights of a version for the measurement: newer ones may end it.
  const uint64_t newest = is_during && !plan_.deterministic ? UINT64_MAX : version;
  int admitted = 0;
  for (uint64_t number = 0; admitted < plan_.heldout_tasks; ++number) {
    const int before = admitted;
    for (const std::string& kind : plan_.kinds) {
      if (admitted == plan_.heldout_tasks) break;
      if (!plan_.counts.empty() && number >= plan_.counts.at(kind).heldout) continue;
      admit_group(kind, plan_.heldout_split, number, phase, temperatures, version, newest);
      ++admitted;
    }
    if (admitted == before) break;  // the set has no more
  }
  (is_during ? open_during_ : open_phase_) += static_cast<uint64_t>(admitted);
}

// Each step once, however often it is trained. One that falls due while another is measured is left out; the last step
// is measured after the training.
void Ledger::measure_if_due(uint64_t step) {
  if (plan_.heldout_every == 0 || plan_.heldout_tasks == 0 || phase_ != Phase::kTrain) return;
  if (step % static_cast<uint64_t>(plan_.heldout_every) != 0 || step <= due_during_ ||
      step >= static_cast<uint64_t>(plan_.steps))
    return;
  due_during_ = step;
  if (open_during_ > 0) return;
  during_step_ = step;
  admit_evaluation(Phase::kDuring, step);
  if (open_during_ > 0) actions_.emplace_back(HeldoutBegun{step});
}

void Ledger::count_measured(const EpisodeRecord& episode) {
  Measurement& of = measurements_[episode.min_version];
  const bool passed = episode.commit->reward.value_or(0) >= 1;
  if (episode.temperature == 0) {
    ++of.greedy_samples;
    of.greedy_passed += passed;
  } else {
    ++of.samples;
    of.passed += passed;
  }
  of.last_version = std::max(of.last_version, episode.commit->last_version);
}

void Ledger::admit_training() {
  const std::vector<float> temperatures(plan_.group_size, plan_.temperature);
  const uint64_t wanted = static_cast<uint64_t>(plan_.groups_per_step) * (1 + plan_.max_lag);
  const uint64_t last = static_cast<uint64_t>(plan_.steps);
  // Groups of batches that are formed but not trained count: they are what the lag consists of.
  const auto in_flight = [&] {
    return open_training_.size() + (batches_formed_ - steps_trained_) * plan_.groups_per_step;
  };
  const auto still_needed = [&] { return (last - batches_formed_) * plan_.groups_per_step; };
  while (in_flight() < wanted && open_training_.size() < still_needed()) {
    if (drawn_.empty()) drawn_ = curriculum_.draw(draws_++, plan_.groups_per_step);
    const std::string kind = drawn_.back();
    drawn_.pop_back();
    const uint64_t number = train_groups_admitted_++;
    open_training_.push_back(groups_.size());
    const uint64_t task = plan_.counts.empty() ? derive_seed(plan_.seed, {kTaskStream, number}) : order_.next(kind);
    admit_group(kind, "train", task, Phase::kTrain, temperatures, binds_lag() ? newest_version_ : steps_trained_,
                plan_.deterministic ? steps_trained_ : UINT64_MAX);
  }
}

}  // namespace tandem::rollout
