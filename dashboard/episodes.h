// Every episode of a run as one JSON object: what it was, how it ended, where it went.
//
// Thread safety: none needed; values.
#pragma once

#include <functional>

#include "base/file.h"
#include "base/json.h"
#include "rollout/books/ledger_log.h"

namespace tandem::rollout {
struct Trajectory;
}

namespace tandem::dashboard {

// How the episode ended; nothing while it is under way. One that was dropped without a result of its own (its worker
// lost, its time up, the run at its end) has the outcome that its reason stands for.
std::optional<rollout::Outcome> outcome_of(const rollout::EpisodeRecord& episode);

// "set/train/17", as the environments name it.
std::string task_of(const rollout::EpisodeRecord& episode);

// The object that `tandem episodes` prints. `weights` of the run's plan make the learned reward of a training episode;
// without them it is null.
Json describe(const rollout::EpisodeRecord& episode, const std::optional<rollout::RewardWeights>& weights);

// The lists that --tokens adds; empty ones where there is no trajectory.
void add_tokens(Json& object, const rollout::Trajectory* trajectory);

enum class WithTokens : uint8_t { kNo, kYes };

// All episodes in order of admission, each described when the log has said what became of it, and the books at the end
// of the log; the errors are those of rollout::read_episodes(), of reading the trajectories, and of `visit`.
Result<rollout::Ledger> visit_episodes(const fs::path& run_dir, const rollout::PlanOfConfig& plan_of_config,
                                       WithTokens with_tokens, const std::function<Status(const Json&)>& visit);

}  // namespace tandem::dashboard
