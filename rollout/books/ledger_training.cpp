// The ledger's groups and batches: what is admitted, what is trained when, and what a trainer that comes back gets
// again.
#include <algorithm>

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
  for (auto& [step, batch] : batches_) {
    if (step <= event.step) continue;
    if (step <= steps_trained_) {
      for (const BatchEntry& entry : batch.entries) {
        EpisodeRecord& episode = episodes_[entry.key.episode];
        if (episode.state != EpisodeState::kTrained) continue;
        episode.state = EpisodeState::kBatched;
        --trained_;
      }
    }
    actions_.push_back(batch);
  }
  steps_trained_ = std::min(steps_trained_, event.step);
  checkpointed_ = std::min(checkpointed_, event.step);
}

void Ledger::on(const Trained& event) {
  const auto found = batches_.find(event.step);
  if (found == batches_.end() || event.step != steps_trained_ + 1) return;
  const std::set<EpisodeKey> missing(event.missing.begin(), event.missing.end());
  for (const BatchEntry& entry : found->second.entries) {
    EpisodeRecord& episode = episodes_[entry.key.episode];
    if (episode.state != EpisodeState::kBatched) continue;
    if (missing.contains(entry.key)) {
      drop(episode, "trajectory_lost");
    } else {
      episode.state = EpisodeState::kTrained;
      ++trained_;
    }
  }
  steps_trained_ = event.step;
  actions_.emplace_back(StepDone{event.step});
}

void Ledger::on(const Checkpointed& event) { checkpointed_ = std::max(checkpointed_, event.step); }

void Ledger::on(const FinishRequested&) {
  finishing_ = true;
  for (EpisodeRecord& episode : episodes_) episode.interrupted = episode.state == EpisodeState::kLeased;
}

// ---- Admission ----

void Ledger::admit_group(const std::string& kind, const std::string& split, uint64_t task_seed, Phase phase,
                         std::span<const float> temperatures, uint64_t min_version, uint64_t max_version) {
  const uint64_t group = groups_.size();
  groups_.push_back({.first = episodes_.size(),
                     .size = static_cast<int>(temperatures.size()),
                     .open = static_cast<int>(temperatures.size()),
                     .phase = phase});
  for (const float temperature : temperatures) {
    const uint64_t id = episodes_.size();
    episodes_.push_back({.episode = id,
                         .group = group,
                         .phase = phase,
                         .kind = kind,
                         .split = split,
                         .task_seed = task_seed,
                         .temperature = temperature,
                         .min_version = min_version,
                         .max_version = max_version});
    queued_.insert(id);
  }
}

// Held-out tasks are the same for every run, whatever its seed.
void Ledger::admit_evaluation(Phase phase, uint64_t version) {
  std::vector<float> temperatures(plan_.heldout_samples, 1.0f);
  temperatures.push_back(0.0f);
  int admitted = 0;
  for (uint64_t number = 0; admitted < plan_.heldout_tasks; ++number) {
    const int before = admitted;
    for (const std::string& kind : plan_.kinds) {
      if (admitted == plan_.heldout_tasks) break;
      if (!plan_.counts.empty() && number >= plan_.counts.at(kind).heldout) continue;
      admit_group(kind, plan_.heldout_split, number, phase, temperatures, version, version);
      ++admitted;
    }
    if (admitted == before) break;  // the set has no more
  }
  open_phase_ += static_cast<uint64_t>(admitted);
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
    admit_group(kind, "train", task, Phase::kTrain, temperatures, steps_trained_,
                plan_.deterministic ? steps_trained_ : UINT64_MAX);
  }
}

void Ledger::form_batches() {
  while (batches_formed_ < static_cast<uint64_t>(plan_.steps)) {
    // The oldest complete groups; in deterministic mode the oldest groups, complete or not.
    std::vector<uint64_t> chosen;
    for (const uint64_t group : open_training_) {
      if (static_cast<int>(chosen.size()) == plan_.groups_per_step) break;
      if (groups_[group].open == 0)
        chosen.push_back(group);
      else if (plan_.deterministic)
        break;
    }
    if (static_cast<int>(chosen.size()) < plan_.groups_per_step) return;
    std::erase_if(open_training_,
                  [&](uint64_t group) { return std::find(chosen.begin(), chosen.end(), group) != chosen.end(); });

    TrainBatch batch{.step = batches_formed_ + 1, .entries = {}};
    StepGroups summary{.groups = plan_.groups_per_step};
    std::vector<std::vector<EpisodeRecord*>> members;
    std::vector<std::vector<double>> rewards;  // that are learned from
    double total = 0;
    int episodes = 0;
    for (const uint64_t group : chosen) {
      groups_[group].consumed = true;
      members.emplace_back();
      rewards.emplace_back();
      double of_group = 0;  // of the tasks: whether they succeeded
      for (int i = 0; i < groups_[group].size; ++i) {
        EpisodeRecord& episode = episodes_[groups_[group].first + i];
        if (episode.state != EpisodeState::kCommitted) continue;
        members.back().push_back(&episode);
        rewards.back().push_back(learned_reward(*episode.commit, plan_.reward));
        of_group += *episode.commit->reward;
        ++episodes;
        auto& [sum, count] = summary.kinds[episode.kind];
        sum += *episode.commit->reward;
        ++count;
      }
      total += of_group;
      if (!rewards.back().empty()) {
        curriculum_.observe(episodes_[groups_[group].first].kind,
                            of_group / static_cast<double>(rewards.back().size()));
      }
    }
    summary.success = episodes > 0 ? total / episodes : 0;
    if (plan_.shuffle_rewards) shuffle_within(rewards, derive_seed(plan_.seed, {kRewardShuffleStream, batch.step}));
    for (size_t g = 0; g < members.size(); ++g) {
      const bool signal =
          std::any_of(rewards[g].begin(), rewards[g].end(), [&](double r) { return r != rewards[g][0]; });
      summary.with_signal += signal;
      const auto advantages = group_advantages(rewards[g], plan_.advantage, plan_.std_epsilon);
      for (size_t i = 0; i < members[g].size(); ++i) {
        EpisodeRecord& episode = *members[g][i];
        if (!signal) {
          drop(episode, "no_signal");
          continue;
        }
        episode.state = EpisodeState::kBatched;
        episode.advantage = advantages[i];
        episode.step = batch.step;
        batch.entries.push_back({{episode.episode, episode.attempt}, episode.group, advantages[i]});
      }
    }
    step_groups_[batch.step] = summary;
    actions_.push_back(batch);
    batches_[batch.step] = std::move(batch);
    ++batches_formed_;
  }
}

}  // namespace tandem::rollout
