// A rollout process: what the other roles say, as events of its episodes.
#include <spdlog/spdlog.h>

#include "envs/episodes/call_messages.h"
#include "rollout/worker_process.h"

namespace tandem::rollout {

namespace {

EpisodeKey key_of(wire::EpisodeAttempt::Reader in) { return {in.getEpisode(), in.getAttempt()}; }

Result<Episode::Began> began_of(int server, wire::Acquired::Reader in) {
  Episode::Began began{.server = server, .sandbox = in.getLease(), .opening = {}, .max_turns = in.getMaxTurns()};
  for (const auto message : in.getMessages())
    began.opening.messages.push_back({message.getRole(), message.getContent()});
  began.opening.tools = TRY(envs::read_tools(std::string(in.getTools())));
  return began;
}

Episode::Called called_of(uint64_t ask, wire::Called::Reader in) {
  Episode::Called called{.ask = ask, .is_over = in.getOver(), .results = {}, .instruction = {}};
  for (const auto result : in.getResults()) called.results.emplace_back(result);
  if (in.getNextStep()) called.instruction = in.getInstruction();
  return called;
}

Episode::Scored scored_of(uint64_t ask, wire::Scored::Reader in) {
  Episode::Scored scored{.ask = ask,
                         .reward = in.getReward(),
                         .terms = {},
                         .turn_rewards = {},
                         .shown = in.getShown(),
                         .found = in.getFound()};
  for (const auto term : in.getTerms()) scored.terms[term.getName()] = term.getValue();
  for (const double reward : in.getTurnRewards()) scored.turn_rewards.push_back(reward);
  scored.behaviour = read_behaviour(in.getBehaviour().cStr());
  return scored;
}

}  // namespace

void Worker::receive() {
  for (int i = 0; i < 64; ++i) {
    auto message = link_.receive();
    if (!message) break;
    on_coordinator(*message);
  }
  for (int i = 0; i < 16; ++i) {
    auto message = trainer_.receive();
    if (!message) break;
    const auto body = message->body();
    // Weights that come take memory of the device; the feed asks for them again.
    if (!engine_.asleep() || body.isChunk()) source_.on_trainer(*message);
    if (body.isTrajectoryAck()) {
      const EpisodeKey key = key_of(body.getTrajectoryAck());
      step(key, Episode::Stored{key});
    }
  }
  if (!engine_.asleep()) source_.receive();
  for (int i = 0; i < 64; ++i) {
    auto heard = env_.receive();
    if (!heard) break;
    on_env(*heard);
  }
  for (int i = 0; i < 16; ++i) {
    auto message = peers_.receive();
    if (!message) break;
    if (message->body().isHandover()) on_handover(*message);
  }
}

void Worker::on_coordinator(const wire::Incoming& message) {
  const auto body = message.body();
  switch (body.which()) {
    case wire::Body::GRANT:
      for (const auto lease : body.getGrant().getLeases()) on_grant(read_lease(lease));
      return;
    case wire::Body::REVOKE: {
      const EpisodeKey key = key_of(body.getRevoke());
      return step(key, Episode::Revoked{key});
    }
    case wire::Body::COMMIT_ACK: {
      const EpisodeKey key = key_of(body.getCommitAck());
      return step(key, Episode::Committed{key});
    }
    case wire::Body::STEAL:
      return hand_over(body.getSteal());
    case wire::Body::CLAIM: {
      const EpisodeKey key = key_of(body.getClaim());
      const Episode* const e = find(key);
      const bool is_thief = e != nullptr && e->waiting() == Waiting::kClaim;
      step(key, Episode::Ours{key, body.getClaim().getClaims()});
      if (is_thief && e->waiting() != Waiting::kClaim) ++taken_;
      return;
    }
    case wire::Body::CLAIMED: {
      const EpisodeKey key = key_of(body.getClaimed());
      return step(key, Episode::Gone{key, body.getClaimed().getClaims()});
    }
    case wire::Body::PEERS:
      return on_peers(body.getPeers());
    case wire::Body::STOP:
      stopped_ = true;
      return;
    default:
      return;
  }
}

void Worker::on_grant(LeaseTerms lease) {
  const uint64_t id = lease.key.episode;
  source_.know(lease.min_version);
  // What is here of it is an attempt that the coordinator has given up.
  if (const auto former = episodes_.find(id); former != episodes_.end()) {
    const EpisodeKey key = former->second.key();
    step(key, Episode::Revoked{key});
  }
  const auto settings = episode_settings(lease.kind);
  episodes_.try_emplace(id, std::move(lease), settings, clock_.now());
  credits_announced_ = UINT32_MAX;
}

void Worker::on_handover(const wire::Incoming& message) {
  auto handover = read_handover(message);
  if (!handover) return spdlog::warn("{}", handover.error().message());  // the other side takes it back
  const uint64_t id = handover->lease.key.episode;
  if (episodes_.contains(id)) return;
  if (handover->sandbox && !env_.knows(handover->server)) {
    return spdlog::warn("an episode came from env-{}, to which this rollout has no line", handover->server);
  }
  const auto settings = episode_settings(handover->lease.kind);
  const auto taken = episodes_.try_emplace(id, std::move(*handover), settings, clock_.now()).first;
  step(taken->second, Episode::Tick{engine_.version()});
}

void Worker::on_peers(wire::Peers::Reader peers) {
  const auto directory = wire::Directory::read(peers);
  const auto complain = [](const Status& status) {
    if (!status) spdlog::error("the directory of the run: {}", status.message());
  };
  if (!directory) return complain(directory.error());
  complain(env_.follow(*directory));
  complain(source_.follow(*directory));
}

void Worker::on_env(const EnvLines::Heard& heard) {
  if (heard.is_new_life) step_all(Episode::ServerRestarted{heard.server});
  const auto body = heard.message.body();
  if (body.isAcquired()) on_sandbox(heard.server, body.getAcquired());
  if (!heard.request) return;  // it was given up, or answered before
  const auto& [key, ask] = *heard.request;
  tool_seconds_ += to_seconds(heard.waited);
  if (body.isCalled()) return step(key, called_of(ask, body.getCalled()));
  if (body.isScored()) return step(key, scored_of(ask, body.getScored()));
  if (!body.isFailed()) return;
  const Status failure = wire::read_failure(body.getFailed());
  if (failure.code() == Code::kExhausted) env_.leave_alone(heard.server);
  step(key, Episode::Refused{ask, failure, env_.has_room(env_load())});
}

void Worker::on_sandbox(int server, wire::Acquired::Reader acquired) {
  const EpisodeKey key{acquired.getEpisode(), acquired.getAttempt()};
  if (find(key) == nullptr) {
    // A server that was asked twice answers twice, with the same sandbox, which may be with another rollout by now.
    const auto gone = handed_sandboxes_.find(key);
    if (gone != handed_sandboxes_.end() && gone->second == std::pair(server, acquired.getLease())) return;
    return env_.release(server, acquired.getLease());
  }
  auto began = began_of(server, acquired);
  if (!began) {
    spdlog::error("env-{}: {}", server, began.error().message());
    return env_.release(server, acquired.getLease());
  }
  step(key, *began);
}

}  // namespace tandem::rollout
