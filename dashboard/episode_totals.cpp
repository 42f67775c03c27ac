#include "dashboard/episode_totals.h"

#include "dashboard/episodes.h"

namespace tandem::dashboard {

using rollout::EpisodeState;
using rollout::Phase;

void EpisodeTotals::add(const rollout::EpisodeRecord& episode) {
  if (episode.state == EpisodeState::kTrained || episode.state == EpisodeState::kDropped) {
    if (const auto outcome = outcome_of(episode)) ++outcomes[*outcome];
  }
  heldout.add(episode);
  if (!episode.commit) return;
  const rollout::Commit& commit = *episode.commit;
  prompt_tokens += commit.prompt_tokens;
  sampled_tokens += commit.sampled_tokens;
  steals += commit.steals;
  retokenised_turns += commit.retokenised_turns;
  compactions += commit.compactions;
  branches += commit.branch_turn > 0;
  inherited_tokens += commit.inherited_tokens;
  inherited_calls += commit.inherited_calls;
  if (!commit.reward) return;
  if (episode.phase == Phase::kTrain) ++trained_on[episode.kind];
  if (episode.phase != Phase::kBefore && episode.phase != Phase::kAfter) return;
  if (commit.key.attempt != episode.attempt) return;
  TaskPairs& task = pairs[episode.kind][episode.task_seed];
  EpisodePair& pair = episode.temperature == 0 ? task.greedy : task.sampled;
  auto& place = episode.phase == Phase::kBefore ? pair.before : pair.after;
  if (!place) place = episode;
}

}  // namespace tandem::dashboard
