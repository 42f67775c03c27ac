#include "rollout/env_line.h"

#include <utility>

namespace tandem::rollout {

void EnvLine::ask(AgentEpisode& e) {
  drop(e);
  e.request = ++last_request_;
  e.sends = 1;
  requests_[e.request] = e.lease.key.episode;
  repeat(e);
}

void EnvLine::repeat(AgentEpisode& e) {
  e.sent = clock_.now();
  wire::Outgoing message(e.request);
  write_env_request(e, message.body());
  (void)socket_.send("", message);  // what is lost is asked again
}

void EnvLine::drop(AgentEpisode& e) { requests_.erase(std::exchange(e.request, 0)); }

void EnvLine::release(AgentEpisode& e) {
  if (e.env_lease != 0) release(std::exchange(e.env_lease, 0));
}

void EnvLine::release(uint64_t lease) {
  wire::Outgoing message;
  message.body().setRelease(lease);
  (void)socket_.send("", message);  // a sandbox that nobody asks about is let go in time
}

void EnvLine::greet() {
  wire::Outgoing message;
  message.body().initHello();
  (void)socket_.send("", message);
}

bool EnvLine::is_new_life(const wire::Incoming& message) {
  return std::exchange(epoch_, message.epoch()) != message.epoch();
}

std::optional<uint64_t> EnvLine::episode_of(const wire::Incoming& message) {
  const auto asked = requests_.find(message.id());
  if (asked == requests_.end()) return std::nullopt;
  const uint64_t episode = asked->second;
  requests_.erase(asked);
  return episode;
}

}  // namespace tandem::rollout
