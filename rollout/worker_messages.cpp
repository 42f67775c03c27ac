// A rollout process: messages of other roles.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "rollout/worker_process.h"

namespace tandem::rollout {

using namespace std::chrono_literals;

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
    if (body.isWeightsManifest()) feed_.on_manifest(body.getWeightsManifest());
    if (body.isChunk()) feed_.on_chunk(*message);
    if (body.isTrajectoryAck()) on_stored({body.getTrajectoryAck().getEpisode(), body.getTrajectoryAck().getAttempt()});
  }
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
    case wire::Body::GRANT: {
      for (const auto lease : body.getGrant().getLeases()) {
        AgentEpisode e;
        e.lease = read_lease(lease);
        e.started = clock_.now();
        const uint64_t id = e.lease.key.episode;
        if (episodes_.contains(id)) forget(id);
        episodes_.emplace(id, std::move(e));
      }
      credits_announced_ = UINT32_MAX;
      return;
    }
    case wire::Body::REVOKE: {
      const auto found = episodes_.find(body.getRevoke().getEpisode());
      if (found != episodes_.end() && found->second.lease.key.attempt == body.getRevoke().getAttempt())
        forget(found->first);
      return;
    }
    case wire::Body::COMMIT_ACK: {
      const auto found = episodes_.find(body.getCommitAck().getEpisode());
      if (found != episodes_.end() && found->second.lease.key.attempt == body.getCommitAck().getAttempt() &&
          found->second.waiting == Waiting::kCoordinator) {
        forget(found->first);
        ++finished_;
      }
      return;
    }
    case wire::Body::STEAL:
      return hand_over(body.getSteal());
    case wire::Body::CLAIM:
      return on_mine({body.getClaim().getEpisode(), body.getClaim().getAttempt()});
    case wire::Body::CLAIMED:
      return on_gone({body.getClaimed().getEpisode(), body.getClaimed().getAttempt()});
    case wire::Body::PEERS:
      return on_peers(body.getPeers());
    case wire::Body::STOP:
      stopped_ = true;
      return;
    default:
      return;
  }
}

void Worker::on_peers(wire::Peers::Reader peers) {
  const auto directory = wire::Directory::read(peers);
  const Status status = directory ? env_.follow(*directory) : directory.error();
  if (!status) spdlog::error("the directory of the run: {}", status.message());
}

void Worker::on_env(const EnvLines::Heard& heard) {
  const wire::Incoming& message = heard.message;
  if (heard.new_life) ask_new_env(heard.server);
  if (message.body().isWelcome()) return;
  const auto id = env_.episode_of(message);
  if (!id) {
    if (message.body().isAcquired()) on_unasked_lease(heard.server, message.body().getAcquired());
    return;
  }
  const auto found = episodes_.find(*id);
  if (found == episodes_.end() || found->second.request != message.id()) return;
  AgentEpisode& e = found->second;
  e.request = 0;
  tool_seconds_ += to_seconds(clock_.now() - e.sent);
  const auto body = message.body();
  if (body.isFailed()) {
    const Status failure = wire::read_failure(body.getFailed());
    const bool no_room = e.waiting == Waiting::kSandbox && failure.code() == Code::kExhausted;
    if (no_room && clock_.now() - e.wanted < 2 * from_seconds(settings_.request_seconds)) return env_.ask_elsewhere(e);
    return hand_back(e, Outcome::kInfraError, failure.message());
  }
  if (body.isAcquired() && e.waiting == Waiting::kSandbox) return begin(e, body.getAcquired());
  if (body.isCalled() && e.waiting == Waiting::kTools) return on_called(e, body.getCalled());
  if (body.isScored() && e.waiting == Waiting::kGrade) {
    e.reward = body.getScored().getReward();
    for (const auto term : body.getScored().getTerms()) e.terms[term.getName()] = term.getValue();
    return deliver(e);
  }
}

void Worker::ask_new_env(int server) {
  for (auto& [id, e] : episodes_) {
    if (is_for_env(e.waiting) && e.env_server == server && e.request != 0) env_.repeat(e);
  }
}

void Worker::on_unasked_lease(int server, wire::Acquired::Reader acquired) {
  const auto found = episodes_.find(acquired.getEpisode());
  const bool is_of_ours = found != episodes_.end() && found->second.lease.key.attempt == acquired.getAttempt() &&
                          found->second.env_server == server;
  const bool is_wanted =
      is_of_ours && (found->second.waiting == Waiting::kSandbox || found->second.env_lease == acquired.getLease());
  if (!is_wanted) env_.release(server, acquired.getLease());
}

void Worker::send_trajectory(AgentEpisode& e) {
  e.sent = clock_.now();
  wire::Outgoing message;
  write_trajectory(e.trajectory, message.body().initTrajectory(), message);
  (void)trainer_.send("", message);
}

void Worker::send_commit(AgentEpisode& e) {
  e.sent = clock_.now();
  wire::Outgoing message;
  write_commit(e, engine_.version(), e.sent, message.body().initCommit());
  (void)link_.send(message);
}

void Worker::resend_late() {
  const Time now = clock_.now();
  if (now < next_resend_) return;
  next_resend_ = now + 200ms;
  bool env_is_slow = false;
  for (auto& [id, e] : episodes_) {
    const Duration waited = now - e.sent;
    env_is_slow = env_is_slow || (is_for_env(e.waiting) && waited > 1s);
    switch (e.waiting) {
      case Waiting::kSandbox:
        if (e.request == 0 ? now >= e.ask_at : env_.is_stranded(e)) {
          env_.ask(e);
          break;
        }
        if (e.request == 0) break;
        [[fallthrough]];
      case Waiting::kTools:
      case Waiting::kGrade:
        if (waited < from_seconds(settings_.request_seconds)) break;
        if (e.sends >= 2)
          hand_back(
              e, Outcome::kInfraError,
              fmt::format("the environment server did not answer within {:.0f} s", 2 * settings_.request_seconds));
        else if (++e.sends; true)
          env_.repeat(e);
        break;
      case Waiting::kTrainer:
        if (waited > 2s) send_trajectory(e);
        break;
      case Waiting::kCoordinator:
        if (waited > 2s) send_commit(e);
        break;
      case Waiting::kHandedOver:
        if (waited > 5s) take_back(e);
        break;
      case Waiting::kClaim:
        if (waited > 2s) send_claim(e);
        break;
      default:
        break;
    }
  }
  if ((!env_is_slow && !env_.is_one_silent()) || now < next_env_hello_) return;
  next_env_hello_ = now + 1s;
  env_.greet();
}

}  // namespace tandem::rollout
