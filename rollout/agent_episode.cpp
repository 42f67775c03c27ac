#include "rollout/agent_episode.h"

#include <algorithm>
#include <array>

#include "rollout/books/lease.h"

namespace tandem::rollout {

std::string_view to_string(Waiting waiting) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "weights", "sandbox", "tokens", "tools", "grade", "trainer", "coordinator", "a claim elsewhere", "a claim"};
  return kNames[static_cast<size_t>(waiting)];
}

void write_env_request(const AgentEpisode& e, const std::string& run_dir, wire::Body::Builder body) {
  if (e.waiting == Waiting::kSandbox) {
    auto acquire = body.initAcquire();
    acquire.setEpisode(e.lease.key.episode);
    acquire.setAttempt(e.lease.key.attempt);
    acquire.setKind(e.lease.kind);
    acquire.setSplit(e.lease.split);
    acquire.setSeed(e.lease.task_seed);
    acquire.setRunDir(run_dir);
  } else if (e.waiting == Waiting::kTools) {
    auto call = body.initCall();
    call.setLease(e.env_lease);
    call.setTurn(e.turns);
    call.setMessage(e.said);
  } else {
    auto score = body.initScore();
    score.setLease(e.env_lease);
    score.setAnswer(e.said);
  }
}

void write_commit(const AgentEpisode& e, uint64_t version, Time now, wire::Commit::Builder out) {
  out.setEpisode(e.lease.key.episode);
  out.setAttempt(e.lease.key.attempt);
  out.setOutcome(std::string(to_string(e.outcome)));
  out.setReason(e.reason);
  out.setHasReward(e.reward.has_value());
  out.setReward(e.reward.value_or(0));
  auto terms = out.initTerms(static_cast<unsigned>(e.terms.size()));
  unsigned i = 0;
  for (const auto& [name, value] : e.terms) {
    terms[i].setName(name);
    terms[i++].setValue(value);
  }
  uint64_t first = UINT64_MAX, last = 0;
  uint32_t sampled = 0;
  for (size_t t = 0; t < e.trajectory.tokens.size(); ++t) {
    if (!e.trajectory.sampled[t]) continue;
    first = std::min(first, e.trajectory.versions[t]);
    last = std::max(last, e.trajectory.versions[t]);
    ++sampled;
  }
  out.setFirstVersion(sampled > 0 ? first : version);
  out.setLastVersion(sampled > 0 ? last : version);
  out.setTurns(e.turns);
  out.setToolCalls(e.tool_calls);
  out.setSeconds(to_seconds(now - e.started));
  out.setPromptTokens(e.prompt_tokens);
  out.setSampledTokens(sampled);
  out.setSteals(e.steals);
}

void write_handover(const AgentEpisode& e, wire::Outgoing& message) {
  auto out = message.body().initHandover();
  write_lease(e.lease, out.initLease());
  write_trajectory(e.trajectory, out.initTrajectory(), message);
  out.setEnvLease(e.env_lease);  // none before it has begun
  out.setEnvServer(static_cast<uint32_t>(e.env_server.value_or(0)));
  out.setSaid(e.said);
  out.setTurns(e.turns);
  out.setMaxTurns(e.max_turns);
  out.setToolCalls(e.tool_calls);
  out.setSteals(e.steals + 1);
  out.setPromptTokens(e.prompt_tokens);
}

Result<AgentEpisode> read_handover(const wire::Incoming& message, Time now) {
  const auto in = message.body().getHandover();
  AgentEpisode e;
  e.trajectory = TRY(read_trajectory(in.getTrajectory(), message));
  e.lease = read_lease(in.getLease());
  e.env_lease = in.getEnvLease();
  e.said = in.getSaid();
  e.turns = in.getTurns();
  e.max_turns = in.getMaxTurns();
  e.tool_calls = in.getToolCalls();
  e.steals = in.getSteals();
  e.prompt_tokens = in.getPromptTokens();
  e.waiting = Waiting::kClaim;
  e.started = now;
  return e;
}

}  // namespace tandem::rollout
