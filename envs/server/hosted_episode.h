// One episode of the server, and the answers to what is asked of it: each is given again where it is asked again.
//
// Thread safety: `begin`, `call` and `score` take their turns at the episode, and may be called from any thread. What
// the server's loop keeps about it belongs to that thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/digest.h"
#include "envs/episodes/work_record.h"
#include "envs/server/server.h"
#include "envs/server/session_record.h"

namespace tandem::envs {

using AnswerWriter = std::function<void(wire::Body::Builder)>;

class HostedEpisode {
 public:
  HostedEpisode(uint64_t run, const Clock& clock) : run(run), last_used(clock.now()), clock_(clock) {}

  struct Start {
    TaskSpec spec;
    SandboxHolder holder;
    ToolListing listing = ToolListing::kByTemplate;
    bool is_trunk = false;  // others will branch from it
    std::shared_ptr<HostedEpisode> trunk =
        nullptr;  // to begin as it is after `trunk_turn` turns; null: as the task says
    uint32_t trunk_turn = 0;
  };
  // Opens the episode where that has not been done. kUnfit where the trunk cannot be branched, kNotFound where it is
  // not behind that turn.
  Result<AnswerWriter> begin(const Start& start, const std::function<Result<std::shared_ptr<const RunTerms>>()>& terms,
                             SandboxBackend& backend);
  // kInvalid where the turn was played with other calls, kNotFound where the episode is over.
  Result<AnswerWriter> call(wire::Call::Reader in);
  Result<AnswerWriter> score(wire::Score::Reader in, SandboxBackend& backend);

  bool has_begun() const { return episode_ != nullptr; }  // while nobody opens it
  bool is_foreign() const { return foreign_ != nullptr; }
  // Its grade takes as long as rewards of somebody's own do.
  bool is_scored_apart() const { return is_scored_apart_; }

  // Of the server's loop.
  const uint64_t run;
  Time last_used;
  int opening = 0;  // requests to acquire it that have not been answered
  int working = 0;  // other requests that have not been answered

 private:
  // What a turn was answered.
  struct TurnAnswer {
    Digest asked;  // of the request
    bool over = false;
    std::vector<std::string> results;
    std::optional<std::string> instruction;  // of the next step
  };
  Status open(const Start& start, const RunTerms& terms, SandboxBackend& backend);
  Status begin_from(HostedEpisode& trunk, uint32_t turn, const SandboxHolder& holder);
  Result<TurnAnswer> play(wire::Call::Reader in);

  const Clock& clock_;
  std::mutex mutex_;
  std::shared_ptr<ForeignEnvironments> foreign_;  // outlives its attempts
  std::unique_ptr<Attempt> episode_;
  EpisodeOptions options_;
  std::shared_ptr<Rewards> rewards_;
  SessionRecord record_;  // where there are rewards
  std::map<uint32_t, TurnAnswer> turns_;
  WorkRecord work_;
  Time began_{};  // of a branch: its trunk's
  std::optional<Grade> grade_;
  Behaviour behaviour_;  // once there is a grade
  std::atomic<bool> is_scored_apart_{false};
};

}  // namespace tandem::envs
