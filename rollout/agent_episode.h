// An episode in the hands of a rollout: its lease, what was said, what it waits for; and the messages made of it.
//
// Values; whoever holds one decides what happens next (worker.cpp).
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "rollout/books/outcome.h"
#include "rollout/books/trajectory.h"

namespace tandem::rollout {

// What an episode waits for, in the order of its life.
enum class Waiting : uint8_t {
  kWeights,
  kSandbox,
  kTokens,
  kTools,
  kGrade,
  kTrainer,
  kCoordinator,
  kHandedOver,
  kClaim
};
std::string_view to_string(Waiting waiting);  // "for ...", in a sentence
inline bool is_for_env(Waiting waiting) {
  return waiting == Waiting::kSandbox || waiting == Waiting::kTools || waiting == Waiting::kGrade;
}

struct AgentEpisode {
  LeaseTerms lease;
  Waiting waiting = Waiting::kWeights;
  Trajectory trajectory;
  uint64_t env_lease = 0;
  std::optional<int> env_server;  // rank of the one whose lease that is, or where one was asked for
  uint32_t turns = 0, max_turns = 0, tool_calls = 0, prompt_tokens = 0, steals = 0;
  Waiting parked_as = Waiting::kWeights;  // what it waited for when it was handed over
  std::string said;                       // in the last turn
  bool truncated = false;
  Outcome outcome = Outcome::kCompleted;
  std::string reason;  // of an outcome that is not the policy's
  std::optional<double> reward;
  std::map<std::string, double> terms;

  uint64_t request = 0;  // outstanding, to the environment
  int sends = 0;
  Time started{}, sent{};
  Time wanted{}, ask_at{};  // when a sandbox was first asked for; when to ask again where there was no room
};

// What the episode asks of the environment now: a sandbox, a turn's calls, or a grade.
void write_env_request(const AgentEpisode& episode, const std::string& run_dir, wire::Body::Builder body);
// How it ended. `version` stands for those of its tokens where it has none.
void write_commit(const AgentEpisode& episode, uint64_t version, Time now, wire::Commit::Builder out);
// All that another rollout needs to go on with it, and back; the taker's copy waits for its claim.
void write_handover(const AgentEpisode& episode, wire::Outgoing& message);
Result<AgentEpisode> read_handover(const wire::Incoming& message, Time now);

}  // namespace tandem::rollout
