#include "dashboard/episodes.h"

#include <fmt/format.h>

#include "rollout/books/learned_reward.h"
#include "rollout/books/trajectory.h"

namespace tandem::dashboard {

using rollout::EpisodeRecord;
using rollout::EpisodeState;
using rollout::Outcome;

namespace {

// The result of the attempt that counts; a commit of an earlier attempt that was tried again says nothing.
const rollout::Commit* result_of(const EpisodeRecord& episode) {
  const bool current = episode.commit && episode.commit->key.attempt == episode.attempt;
  return current ? &*episode.commit : nullptr;
}

}  // namespace

std::optional<Outcome> outcome_of(const EpisodeRecord& episode) {
  if (const auto* result = result_of(episode)) return result->outcome;
  if (episode.state != EpisodeState::kDropped) return std::nullopt;
  if (episode.dropped == "timeout") return Outcome::kTimeout;
  if (episode.dropped == "worker_lost") return Outcome::kInfraError;
  return Outcome::kCancelled;
}

std::string task_of(const EpisodeRecord& episode) {
  return fmt::format("{}/{}/{}", episode.kind, episode.split, episode.task_seed);
}

Json describe(const EpisodeRecord& episode, const std::optional<rollout::RewardWeights>& weights) {
  const rollout::Commit* result = result_of(episode);
  const auto outcome = outcome_of(episode);
  const bool batched = episode.state == EpisodeState::kBatched || episode.state == EpisodeState::kTrained;
  const bool dropped = episode.state == EpisodeState::kDropped;
  Json object = {{"episode", episode.episode}, {"attempt", episode.attempt}, {"group", episode.group},
                 {"task", task_of(episode)},   {"kind", episode.kind},       {"split", episode.split}};
  // What was measured at an end of the run stays that, also where the run was made longer.
  const bool earlier = episode.phase == rollout::Phase::kBetween;
  object["phase"] = to_string(earlier ? rollout::Phase::kAfter : episode.phase);
  if (earlier) object["superseded"] = true;
  object["state"] = to_string(episode.state);
  object["temperature"] = episode.temperature;
  object["outcome"] = outcome ? Json(rollout::to_string(*outcome)) : Json();
  object["reward"] = result != nullptr && result->reward ? Json(*result->reward) : Json();
  // What it teaches; held-out episodes teach nothing.
  const bool teaches = weights && result != nullptr && result->reward && episode.phase == rollout::Phase::kTrain;
  object["learned_reward"] = teaches ? Json(rollout::learned_reward(*result, *weights)) : Json();
  // Why the attempt has no reward, or what was wrong with the policy's messages; of one that is tried again, why that
  // is.
  const bool is_open = episode.state == EpisodeState::kQueued || episode.state == EpisodeState::kLeased;
  const rollout::Commit* const told = result == nullptr && is_open && episode.commit ? &*episode.commit : result;
  object["reason"] = told != nullptr && !told->reason.empty() ? Json(told->reason) : Json();
  object["terms"] = result != nullptr ? Json(result->terms) : Json::object();
  // A group whose rewards are all the same has advantages of zero.
  object["advantage"] = batched                                     ? Json(episode.advantage)
                        : dropped && episode.dropped == "no_signal" ? Json(0.0)
                                                                    : Json();
  object["trained_step"] = episode.state == EpisodeState::kTrained ? Json(episode.step) : Json();
  object["dropped"] = dropped ? Json(episode.dropped) : Json();
  object["worker"] = result != nullptr ? Json(result->worker) : episode.worker.empty() ? Json() : Json(episode.worker);
  object["steals"] = result != nullptr ? result->steals : 0;
  object["versions"] = result != nullptr ? Json{result->first_version, result->last_version} : Json();
  object["turns"] = result != nullptr ? result->turns : 0;
  object["tool_calls"] = result != nullptr ? result->tool_calls : 0;
  if (result != nullptr && result->compactions > 0) object["compactions"] = result->compactions;
  if (result != nullptr && result->behaviour) object["behaviour"] = to_json(*result->behaviour);
  if (result != nullptr && result->branch_turn > 0) {
    object["branch"] = {{"of", result->branch_family},
                        {"turn", result->branch_turn},
                        {"inherited_tokens", result->inherited_tokens},
                        {"inherited_calls", result->inherited_calls}};
  }
  object["seconds"] = result != nullptr ? Json(result->seconds) : Json();
  return object;
}

void add_tokens(Json& object, const rollout::Trajectory* trajectory) {
  Json tokens = Json::array(), sampled = Json::array(), logprobs = Json::array(), versions = Json::array();
  for (size_t i = 0; trajectory != nullptr && i < trajectory->tokens.size(); ++i) {
    const bool said = trajectory->sampled[i] != 0;
    tokens.push_back(trajectory->tokens[i]);
    sampled.push_back(said ? 1 : 0);
    logprobs.push_back(said ? Json(trajectory->logprobs[i]) : Json());
    versions.push_back(said ? Json(trajectory->versions[i]) : Json());
  }
  object["tokens"] = std::move(tokens);
  object["sampled"] = std::move(sampled);
  object["logprobs"] = std::move(logprobs);
  object["token_versions"] = std::move(versions);
  if (trajectory != nullptr && !trajectory->later_segments.empty())
    object["later_segments"] = trajectory->later_segments;
  if (trajectory != nullptr && !trajectory->hint.empty()) object["hint"] = to_json(trajectory->hint);
  if (trajectory != nullptr && trajectory->trunk.tokens > 0) object["branch"]["tokens"] = trajectory->trunk.tokens;
}

Result<rollout::Ledger> visit_episodes(const fs::path& run_dir, const rollout::PlanOfConfig& plan_of_config,
                                       WithTokens with_tokens, const std::function<Status(const Json&)>& visit) {
  std::optional<rollout::TrajectoryStore> store;
  if (with_tokens == WithTokens::kYes) store = TRY(rollout::TrajectoryStore::open_to_read(run_dir / "trajectories"));
  const auto plan = plan_of_config();
  const auto weights = plan ? std::optional(plan->reward) : std::nullopt;
  const auto show = [&](const EpisodeRecord& episode) -> Status {
    Json object = describe(episode, weights);
    if (store) {
      const rollout::EpisodeKey key{episode.episode, episode.attempt};
      if (store->contains(key)) {
        const auto trajectory = TRY(store->read(key));
        add_tokens(object, &trajectory);
      } else {
        add_tokens(object, nullptr);
      }
    }
    return visit(object);
  };
  return rollout::read_episodes(run_dir, plan_of_config, show);
}

}  // namespace tandem::dashboard
