// A rollout process: episodes that go to another, or come from one.
#include <spdlog/spdlog.h>

#include "rollout/worker_process.h"

namespace tandem::rollout {

void Worker::hand_over(wire::Steal::Reader steal) {
  uint32_t left = steal.getCount();
  const std::string thief = steal.getThief();
  for (const Waiting kind : {Waiting::kWeights, Waiting::kSandbox, Waiting::kTools}) {
    for (auto& [id, e] : episodes_) {
      if (left == 0 || e.waiting != kind) continue;
      if (!send_handover(e, thief)) break;
      --left;
      ++handed_over_;
    }
  }
  // What there was is on its way, or nothing was: the thief may ask again.
  wire::Outgoing message;
  message.body().setDeclined(thief);
  (void)link_.send(message);
}

bool Worker::send_handover(AgentEpisode& e, const std::string& thief) {
  auto found = thieves_.find(thief);
  if (found == thieves_.end()) {
    auto socket = wire::Socket::connect(context_, thief, settings_.identity);
    if (!socket) return false;
    found = thieves_.emplace(thief, std::move(*socket)).first;
  }
  wire::Outgoing message;
  write_handover(e, message);
  if (!found->second.send("", message).ok()) return false;
  e.parked_as = e.waiting;
  e.waiting = Waiting::kHandedOver;
  e.sent = clock_.now();
  env_.drop(e);
  return true;
}

void Worker::take_back(AgentEpisode& e) {
  e.waiting = e.parked_as;
  if (e.waiting != Waiting::kWeights) env_.ask(e);
}

void Worker::on_handover(const wire::Incoming& message) {
  auto e = read_handover(message, clock_.now());
  if (!e) return spdlog::warn("{}", e.error().message());  // the other side takes it back
  const uint64_t id = e->lease.key.episode;
  if (episodes_.contains(id)) return;
  if (e->env_lease != 0) {
    if (const Status status = env_.adopt(*e, static_cast<int>(message.body().getHandover().getEnvServer())); !status)
      return spdlog::warn("{}", status.message());
  }
  send_claim(episodes_.emplace(id, std::move(*e)).first->second);
}

void Worker::send_claim(AgentEpisode& e) {
  e.sent = clock_.now();
  wire::Outgoing message;
  auto claim = message.body().initClaim();
  claim.setEpisode(e.lease.key.episode);
  claim.setAttempt(e.lease.key.attempt);
  (void)link_.send(message);
}

void Worker::on_gone(const EpisodeKey& key) {
  const auto found = episodes_.find(key.episode);
  if (found == episodes_.end() || found->second.lease.key != key) return;
  found->second.env_lease = 0;
  forget(key.episode);
}

void Worker::on_mine(const EpisodeKey& key) {
  const auto found = episodes_.find(key.episode);
  if (found == episodes_.end() || found->second.lease.key != key || found->second.waiting != Waiting::kClaim) return;
  ++taken_;
  found->second.waiting = Waiting::kWeights;  // this rollout may be younger than the lease
}

}  // namespace tandem::rollout
