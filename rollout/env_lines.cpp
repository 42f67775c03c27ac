#include "rollout/env_lines.h"

#include <tuple>
#include <utility>

namespace tandem::rollout {

using namespace std::chrono_literals;

namespace {

constexpr auto kPause = 1000ms;  // in which a server without room is left alone
constexpr auto kPatience = 5s;   // then one that says nothing counts as silent

}  // namespace

EnvLines::EnvLines(std::vector<wire::Socket> sockets, std::string run_dir, size_t seed, const Clock& clock)
    : run_dir_(std::move(run_dir)), first_(seed % sockets.size()), clock_(clock) {
  for (auto& socket : sockets) lines_.push_back({.socket = std::move(socket), .full_until = {}, .mute = {}});
}

void EnvLines::add_sockets(std::vector<wire::Socket*>& sockets) {
  for (auto& line : lines_) sockets.push_back(&line.socket);
}

uint64_t EnvLines::refused() const {
  uint64_t sum = 0;
  for (const auto& line : lines_) sum += line.socket.refused();
  return sum;
}

std::optional<EnvLines::Heard> EnvLines::receive() {
  for (size_t i = 0; i < lines_.size(); ++i) {
    auto message = lines_[i].socket.receive();
    if (!message) continue;
    lines_[i].mute.reset();
    const bool new_life = std::exchange(lines_[i].epoch, message->epoch()) != message->epoch();
    return Heard{i, std::move(*message), new_life};
  }
  return std::nullopt;
}

bool EnvLines::answers(const Line& line, Time now) const { return !line.mute || now - *line.mute < kPatience; }

size_t EnvLines::choose(const AgentEpisode& e) const {
  const Time now = clock_.now();
  const auto cost = [&](size_t server) {
    const Line& line = lines_[server];
    const bool is_present = e.env_server == server;
    return std::tuple(!answers(line, now), now < line.full_until, line.episodes - (is_present ? 1 : 0), !is_present,
                      (server + lines_.size() - first_) % lines_.size());
  };
  size_t best = 0;
  for (size_t server = 1; server < lines_.size(); ++server) {
    if (cost(server) < cost(best)) best = server;
  }
  return best;
}

void EnvLines::move(AgentEpisode& e, std::optional<size_t> server) {
  if (e.env_server) --lines_[*e.env_server].episodes;
  e.env_server = server;
  if (server) ++lines_[*server].episodes;
}

void EnvLines::send(size_t server, wire::Outgoing& message) {
  Line& line = lines_[server];
  // What is lost is asked again; to one that is not connected nothing goes at all.
  const Status sent = line.socket.send("", message);
  if (!line.mute) line.mute = sent ? clock_.now() : clock_.now() - kPatience;
}

Status EnvLines::adopt(AgentEpisode& e, size_t server) {
  if (server >= lines_.size())
    return Status::invalid("an episode came from an environment server that this run has not");
  move(e, server);
  return {};
}

void EnvLines::ask(AgentEpisode& e) {
  drop(e);
  if (e.env_lease == 0) move(e, choose(e));
  e.request = ++last_request_;
  e.sends = 1;
  requests_[e.request] = e.lease.key.episode;
  repeat(e);
}

void EnvLines::repeat(AgentEpisode& e) {
  e.sent = clock_.now();
  wire::Outgoing message(e.request);
  write_env_request(e, run_dir_, message.body());
  send(*e.env_server, message);
}

void EnvLines::drop(AgentEpisode& e) { requests_.erase(std::exchange(e.request, 0)); }

void EnvLines::ask_elsewhere(AgentEpisode& e) {
  const Time now = clock_.now();
  lines_[*e.env_server].full_until = now + kPause;
  drop(e);
  e.ask_at = now;
  if (now < lines_[choose(e)].full_until) e.ask_at = now + kPause / 2;
}

bool EnvLines::is_stranded(const AgentEpisode& e) const {
  const Time now = clock_.now();
  return e.env_server && !answers(lines_[*e.env_server], now) && answers(lines_[choose(e)], now);
}

void EnvLines::release(AgentEpisode& e) {
  if (e.env_lease != 0) release(*e.env_server, std::exchange(e.env_lease, 0));
  move(e, std::nullopt);
}

void EnvLines::release(size_t server, uint64_t lease) {
  wire::Outgoing message;
  message.body().setRelease(lease);
  (void)lines_[server].socket.send("", message);  // a sandbox that nobody asks about is let go in time
}

void EnvLines::greet() {
  for (size_t server = 0; server < lines_.size(); ++server) {
    wire::Outgoing message;
    message.body().initHello();
    send(server, message);
  }
}

std::optional<uint64_t> EnvLines::episode_of(const wire::Incoming& message) {
  const auto asked = requests_.find(message.id());
  if (asked == requests_.end()) return std::nullopt;
  const uint64_t episode = asked->second;
  requests_.erase(asked);
  return episode;
}

}  // namespace tandem::rollout
