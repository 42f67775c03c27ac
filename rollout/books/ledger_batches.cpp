// Which groups a batch is made of, and what becomes of their episodes.
//
// A batch for step s is trained at version s - 1. A group whose oldest token is of version b may be trained up to step
// b + max_lag + 1: that is its last step. A batch is formed of complete groups, those with the earliest last step
// first, and only if every group that it leaves behind, complete or not, still has a place in a batch up to its last
// step. Admission keeps to groups_per_step * (1 + max_lag) groups under way, none sampled by older weights than the
// newest when it was leased, so all of them have such a place as long as batches are formed in this way; when all are
// complete, one always can be.
#include <algorithm>
#include <set>

#include "base/random.h"
#include "rollout/books/learned_reward.h"
#include "rollout/books/ledger.h"
#include "rollout/books/seeds.h"

namespace tandem::rollout {

namespace {

// Counts episodes dropped as too old, by sampled tokens.
std::string length_bucket(const EpisodeRecord& episode) {
  if (episode.state != EpisodeState::kCommitted) return "unfinished";
  for (const uint32_t bound : {256u, 1024u, 4096u, 16384u, 65536u}) {
    if (episode.commit->sampled_tokens <= bound) return std::to_string(bound);
  }
  return "longer";
}

// What functions of the user's own may take of an episode: all of it that does not depend on the time of the day.
std::map<std::string, double> metrics_of(const Commit& commit, bool with_terms) {
  std::map<std::string, double> metrics = {{"turns", commit.turns},
                                           {"tool_calls", commit.tool_calls},
                                           {"prompt_tokens", commit.prompt_tokens},
                                           {"sampled_tokens", commit.sampled_tokens},
                                           {"compactions", commit.compactions},
                                           {"truncated", commit.outcome == Outcome::kTruncated ? 1 : 0}};
  if (!with_terms) return metrics;
  for (const auto& [name, value] : commit.terms) metrics["terms." + name] = value;
  return metrics;
}

}  // namespace

// The version of its oldest token, or one that is not newer; one that waits in the queue has none yet.
uint64_t Ledger::bound_of(const EpisodeRecord& episode) const {
  if (episode.state == EpisodeState::kLeased) return episode.min_version;
  if (episode.state != EpisodeState::kCommitted || episode.commit->sampled_tokens == 0) return kUnboundVersion;
  return episode.commit->first_version;
}

uint64_t Ledger::bound_of(Group& group) {
  if (!std::exchange(group.stale, false)) return group.bound;
  group.bound = kUnboundVersion;
  for (uint64_t id = group.first; id < group.first + static_cast<uint64_t>(group.size); ++id) {
    if (records_[id]) group.bound = std::min(group.bound, bound_of(*records_[id]));
  }
  return group.bound;
}

uint64_t Ledger::last_step_for(uint64_t bound) const {
  const auto reach = static_cast<uint64_t>(plan_.max_lag) + 1;
  return bound > UINT64_MAX - reach ? UINT64_MAX : bound + reach;
}

// Whether groups that the batch of `step` leaves behind can all be in later ones in time.
bool Ledger::all_in_time(std::span<const uint64_t> left, uint64_t step) {
  std::vector<uint64_t> last;
  for (const uint64_t group : left) last.push_back(last_step_for(bound_of(groups_[group])));
  std::sort(last.begin(), last.end());
  for (size_t i = 0; i < last.size(); ++i) {
    if (step + 1 + i / static_cast<size_t>(plan_.groups_per_step) > last[i]) return false;
  }
  return true;
}

// Both choices are in order of admission, and empty where no batch can be formed now.

// The oldest complete groups; in deterministic mode the oldest groups, complete or not.
std::vector<uint64_t> Ledger::choose_oldest() const {
  const auto wanted = static_cast<size_t>(plan_.groups_per_step);
  std::vector<uint64_t> chosen;
  for (const uint64_t group : open_training_) {
    if (chosen.size() == wanted) break;
    if (groups_[group].is_complete())
      chosen.push_back(group);
    else if (plan_.deterministic)
      break;
  }
  if (chosen.size() < wanted) chosen.clear();
  return chosen;
}

// Complete groups, those that can wait least, in order of admission; none where a group that is left would be too late.
std::vector<uint64_t> Ledger::choose_in_time() {
  const auto wanted = static_cast<size_t>(plan_.groups_per_step);
  std::vector<uint64_t> complete, left;
  for (const uint64_t group : open_training_) (groups_[group].is_complete() ? complete : left).push_back(group);
  if (complete.size() < wanted) return {};
  const bool some_are_open = !left.empty();
  std::stable_sort(complete.begin(), complete.end(),
                   [&](uint64_t a, uint64_t b) { return bound_of(groups_[a]) < bound_of(groups_[b]); });
  left.insert(left.end(), complete.begin() + static_cast<std::ptrdiff_t>(wanted), complete.end());
  complete.resize(wanted);
  waits_for_lag_ = plan_.on_lag == OnLag::kWait && some_are_open && !all_in_time(left, batches_formed_ + 1);
  if (waits_for_lag_) return {};
  std::sort(complete.begin(), complete.end());
  return complete;
}

// Whether there is something to compare; then the group is complete when the judge has spoken.
bool Ledger::compare(uint64_t number) {
  Group& group = groups_[number];
  Compare action{.group = number, .candidates = {}};
  for (uint64_t id = group.first; id < group.first + static_cast<uint64_t>(group.size); ++id) {
    if (states_[id] != EpisodeState::kCommitted) continue;
    const EpisodeRecord& episode = *records_[id];
    action.candidates.push_back({{episode.episode, episode.attempt}, episode.commit->shown});
  }
  group.comparing = action.candidates.size() > 1;
  if (group.comparing) actions_.push_back(std::move(action));
  return group.comparing;
}

void Ledger::on(const Compared& event) {
  const auto place = std::find(open_training_.begin(), open_training_.end(), event.group);
  if (place == open_training_.end() || !groups_[event.group].comparing) return;
  Group& group = groups_[event.group];
  group.comparing = false;
  may_form_ = true;
  for (const auto& [key, share] : event.preferred) {
    EpisodeRecord* const episode = find(key);
    if (episode != nullptr && episode->group == event.group && episode->state == EpisodeState::kCommitted)
      episode->commit->terms[std::string(kPreferred)] = share;
  }
  ++complete_;
  if (event.failure.empty()) return;
  // No verdict is no reward. As where every episode of a group has failed, nothing of it is left to train on.
  for (uint64_t id = group.first; id < group.first + static_cast<uint64_t>(group.size); ++id) {
    if (states_[id] == EpisodeState::kCommitted) drop(*records_[id], "not_compared");
  }
}

void Ledger::drop_as_too_old(EpisodeRecord& episode) {
  ++too_old_[length_bucket(episode)];
  if (episode.state == EpisodeState::kLeased)
    actions_.push_back(Revoke{episode.worker, {episode.episode, episode.attempt}});
  drop(episode, "too_old");
  const Group& group = groups_[episode.group];
  for (uint64_t id = group.first; id < group.first + static_cast<uint64_t>(group.size); ++id) {
    if (states_[id] <= EpisodeState::kCommitted) return;
  }
  // Nothing is left of its group: another one takes its place.
  if (!std::exchange(groups_[episode.group].comparing, false)) --complete_;
  std::erase(open_training_, episode.group);
}

// What the batches formed so far have left behind for too long.
void Ledger::drop_too_old() {
  const std::vector<uint64_t> open = open_training_;
  for (const uint64_t group : open) {
    if (last_step_for(bound_of(groups_[group])) > batches_formed_) continue;
    const uint64_t first = groups_[group].first, end = first + static_cast<uint64_t>(groups_[group].size);
    for (uint64_t id = first; id < end; ++id) {
      const bool counts = states_[id] == EpisodeState::kLeased || states_[id] == EpisodeState::kCommitted;
      if (counts && last_step_for(bound_of(*records_[id])) <= batches_formed_) drop_as_too_old(*records_[id]);
    }
  }
}

void Ledger::form_batches() {
  while (batches_formed_ < static_cast<uint64_t>(plan_.steps)) {
    if (complete_ < static_cast<uint64_t>(plan_.groups_per_step)) waits_for_lag_ = false;
    // The next step would take the weights away that are measured.
    if (plan_.deterministic && open_during_ > 0) return;
    if (!may_form_ || complete_ < static_cast<uint64_t>(plan_.groups_per_step)) return;
    const auto chosen = binds_lag() ? choose_in_time() : choose_oldest();
    may_form_ = !chosen.empty();
    if (chosen.empty()) return;
    if (do_without_silent(chosen)) continue;
    form_batch(chosen);
    if (binds_lag()) drop_too_old();
  }
}

std::vector<EpisodeRecord*> Ledger::members(uint64_t group) const {
  std::vector<EpisodeRecord*> members;
  const uint64_t first = groups_[group].first;
  for (uint64_t id = first; id < first + static_cast<uint64_t>(groups_[group].size); ++id) {
    if (states_[id] == EpisodeState::kCommitted) members.push_back(records_[id].get());
  }
  return members;
}

std::vector<double> Ledger::learned_rewards(std::span<EpisodeRecord* const> members) const {
  std::vector<double> rewards;
  for (const EpisodeRecord* episode : members) rewards.push_back(learned_reward(*episode->commit, plan_.reward));
  return rewards;
}

// Advantages of tokens have other baselines: equal rewards of a group are no lack of a signal.
bool Ledger::is_silent(std::span<EpisodeRecord* const> members, std::span<const double> rewards) const {
  const bool signal = std::any_of(rewards.begin(), rewards.end(), [&](double r) { return r != rewards[0]; });
  return !signal && (members.empty() || !is_of_tokens(advantage_of(plan_, members[0]->kind).advantage));
}

void Ledger::count(std::span<EpisodeRecord* const> members, Tally& tally) {
  double of_group = 0;          // of the task: whether it succeeded
  std::set<uint64_t> families;  // that have branched
  for (const EpisodeRecord* episode : members) {
    of_group += *episode->commit->reward;
    auto& [sum, count] = tally.groups.kinds[episode->kind];
    sum += *episode->commit->reward;
    ++count;
    if (episode->commit->behaviour) tally.groups.behaviour[episode->kind].add(*episode->commit->behaviour);
    tally.groups.sampled_tokens += episode->commit->sampled_tokens;
    tally.groups.calls += episode->commit->tool_calls;
    if (episode->commit->branch_turn > 0) {
      auto& branches = tally.groups.branches;
      branches.trunks += families.insert(episode->commit->branch_family).second;
      ++branches.episodes;
      branches.inherited_tokens += episode->commit->inherited_tokens;
      branches.inherited_calls += episode->commit->inherited_calls;
    }
    for (const auto& [name, value] : episode->commit->terms) {
      if (tally.groups.terms.size() == kMostTerms && !tally.groups.terms.contains(name)) continue;
      auto& [of_term, having] = tally.groups.terms[name];
      of_term += value;
      ++having;
    }
  }
  ++tally.groups.groups;
  tally.success += of_group;
  tally.episodes += static_cast<int>(members.size());
  if (!members.empty()) curriculum_.observe(members[0]->kind, of_group / static_cast<double>(members.size()));
}

// Whether groups of `chosen` were taken out for want of a signal; others are then drawn in their place.
bool Ledger::do_without_silent(std::span<const uint64_t> chosen) {
  const int most = plan_.all_groups ? 0 : plan_.dynamic_sampling * plan_.groups_per_step;
  bool any = false;
  for (const uint64_t group : chosen) {
    if (left_out_.groups.groups >= most) break;
    const auto all = members(group);
    if (!is_silent(all, learned_rewards(all))) continue;
    count(all, left_out_);
    for (EpisodeRecord* episode : all) drop(*episode, "no_signal");
    std::erase(open_training_, group);
    --complete_;
    any = true;
  }
  return any;
}

void Ledger::form_batch(std::span<const uint64_t> chosen) {
  std::erase_if(open_training_,
                [&](uint64_t group) { return std::binary_search(chosen.begin(), chosen.end(), group); });
  complete_ -= chosen.size();

  TrainBatch batch{.step = batches_formed_ + 1, .entries = {}};
  Tally tally = std::exchange(left_out_, {});
  std::vector<std::vector<EpisodeRecord*>> of_groups;
  std::vector<std::vector<double>> rewards;  // that are learned from
  for (const uint64_t group : chosen) {
    of_groups.push_back(members(group));
    rewards.push_back(learned_rewards(of_groups.back()));
    count(of_groups.back(), tally);
  }
  StepGroups summary = std::move(tally.groups);
  summary.success = tally.episodes > 0 ? tally.success / tally.episodes : 0;
  if (plan_.shuffle_rewards) shuffle_within(rewards, derive_seed(plan_.seed, {kRewardShuffleStream, batch.step}));
  for (size_t g = 0; g < of_groups.size(); ++g) {
    const auto& members = of_groups[g];
    summary.with_signal += std::ranges::any_of(rewards[g], [&](double r) { return r != rewards[g][0]; });
    const AdvantageRule rule = members.empty() ? AdvantageRule{} : advantage_of(plan_, members.front()->kind);
    auto advantages = group_advantages(rewards[g], rule.advantage, rule.std_epsilon, rule.pass_k);
    const bool silent = is_silent(members, rewards[g]);
    if (silent) std::ranges::fill(advantages, 0);
    for (size_t i = 0; i < members.size(); ++i) {
      EpisodeRecord& episode = *members[i];
      if (silent && !plan_.all_groups) {
        drop(episode, "no_signal");
        continue;
      }
      if (plan_.leave_out_truncated && episode.commit->outcome == Outcome::kTruncated) {
        drop(episode, "truncated");
        continue;
      }
      set_state(episode.episode, EpisodeState::kBatched);
      episode.advantage = advantages[i];
      episode.step = batch.step;
      BatchEntry entry{{episode.episode, episode.attempt}, episode.group, advantages[i]};
      if (!plan_.advantages.empty()) entry.kind = episode.kind;
      // Shuffled rewards are others': they have no turns.
      if (is_of_tokens(rule.advantage) && plan_.reward.turns != 0 && !plan_.shuffle_rewards) {
        for (const double turn : episode.commit->turn_rewards) entry.turn_rewards.push_back(plan_.reward.turns * turn);
      }
      if (plan_.episode_metrics) entry.metrics = metrics_of(*episode.commit, !plan_.shuffle_rewards);
      batch.entries.push_back(std::move(entry));
    }
  }
  step_groups_[batch.step] = summary;
  actions_.push_back(batch);
  batches_[batch.step] = std::move(batch);
  ++batches_formed_;
}

}  // namespace tandem::rollout
