// The events of a run's books, as the log stores them.
//
// Values; thread safety: as any value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/behaviour.h"
#include "base/json.h"
#include "rollout/books/outcome.h"
#include "rollout/books/plan.h"

namespace tandem::rollout {

struct EpisodeKey {
  uint64_t episode = 0;
  uint32_t attempt = 0;
  friend auto operator<=>(const EpisodeKey&, const EpisodeKey&) = default;
};

struct PlanSet {  // the first event: what the run is to do
  RunPlan plan;
};
struct Extended {  // the run is to have more steps
  int steps = 0;
};
struct ConfigSet {  // for the record: values of the config from here on, by path; first all, later those that changed
  Json values;
};
struct WorkerJoined {  // a rollout process started, or met a coordinator that had restarted
  std::string worker;
  std::vector<EpisodeKey> holding;
};
struct WorkerLost {
  std::string worker;
};
struct Pull {
  std::string worker;
  uint32_t credits = 0;
};
struct Commit {
  std::string worker;
  EpisodeKey key;
  Outcome outcome = Outcome::kCompleted;
  std::string reason;
  std::optional<double> reward;
  std::map<std::string, double> terms;
  std::vector<double> turn_rewards = {};  // one for each message of the model, or none
  std::string shown = {};                 // what a judge compares with its siblings
  uint64_t first_version = 0, last_version = 0;
  uint32_t turns = 0, tool_calls = 0, retokenised_turns = 0, compactions = 0, steals = 0, prompt_tokens = 0,
           sampled_tokens = 0;
  double seconds = 0;
  // For an episode that has come to the end of its trunk: the turn, the family, and of the numbers above what another
  // episode of the family had sampled and called for it.
  uint32_t branch_turn = 0;
  uint64_t branch_family = 0;
  uint32_t inherited_tokens = 0, inherited_calls = 0;
  std::optional<Behaviour> behaviour = {};  // of one with a reward, as the environment counted it
};
struct TrainerJoined {
  uint64_t step = 0;  // what its checkpoint holds
};
struct Trained {
  uint64_t step = 0;
  std::vector<EpisodeKey> missing;  // of the batch, whose trajectories could not be read
};
struct Checkpointed {
  uint64_t step = 0;
};
struct Compared {  // what a judge said of the episodes of a group
  uint64_t group = 0;
  std::vector<std::pair<EpisodeKey, double>> preferred;  // share of its comparisons that each won
  std::string failure;                                   // why there is none of this; empty: there is
};
struct StealEnded {  // all was handed over, or nothing could be
  std::string thief;
};
struct Expired {  // an episode took longer than any may
  EpisodeKey key;
};
// A rollout to which an episode was offered says that it has it; so does the one that offered it, before it goes on.
struct Claimed {
  EpisodeKey key;
  std::string worker;
  // Granted for this attempt so far, as the worker knows; logs of old do not say it.
  std::optional<uint32_t> claims = {};
};
struct TakenOver {  // the run goes on from its copy on another host; whoever is of an older epoch has no say in it
  uint64_t epoch = 2;
  std::string at;  // for people
};
struct FinishRequested {};
struct CoordinatorStarted {};  // with this log: whoever wants episodes introduces itself again
using Event =
    std::variant<PlanSet, Extended, ConfigSet, WorkerJoined, WorkerLost, Pull, Commit, TrainerJoined, Trained,
                 Checkpointed, Expired, Claimed, StealEnded, FinishRequested, CoordinatorStarted, Compared, TakenOver>;

// The log's format: 1 did not say the plan.
inline constexpr int kLogFormat = 2;

Json to_json(const Event& event);
// kCorrupt for anything but an event; kInvalid where the log has another format than kLogFormat.
Result<Event> event_from_json(const Json& json);

}  // namespace tandem::rollout
