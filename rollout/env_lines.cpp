#include "rollout/env_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace tandem::rollout {

using namespace std::chrono_literals;

namespace {

constexpr auto kPause = 1000ms;  // in which a server without room is left alone
constexpr auto kPatience = 5s;   // then one that says nothing counts as silent

}  // namespace

Status EnvLines::follow(const wire::Directory& directory) {
  Status trouble;
  for (auto& [rank, line] : lines_) {
    const bool is_listed = directory.find({wire::Role::kEnv, rank}) != nullptr;
    // One that is back has a chance, whatever it was like when it left.
    if (is_listed && line.has_left) line.mute.reset(), line.full_until = {};
    line.has_left = !is_listed;
  }
  for (const wire::Peer& peer : directory.all(wire::Role::kEnv)) {
    const wire::Address& address = directory.find(peer)->address;
    const auto found = lines_.find(peer.rank);
    if (found != lines_.end() && found->second.address == address) continue;
    auto socket = connect_(address);
    if (!socket) {
      if (found != lines_.end()) found->second.has_left = true;
      if (trouble) trouble = std::move(socket).error().at(to_string(peer));
      continue;
    }
    Line line{.socket = std::move(*socket), .address = address, .full_until = {}, .mute = {}, .unused = {}};
    if (found == lines_.end()) {
      lines_.emplace(peer.rank, std::move(line));
    } else {
      // What it has of ours is asked for again when it says who it is now.
      line.episodes = found->second.episodes;
      found->second = std::move(line);
    }
  }
  return trouble;
}

void EnvLines::end_unused() {
  const Time now = clock_.now();
  for (auto it = lines_.begin(); it != lines_.end();) {
    Line& line = it->second;
    const bool is_unused = line.has_left && line.episodes == 0;
    if (!is_unused) line.unused.reset();
    if (is_unused && !line.unused) line.unused = now;
    // Leases that were let go of are on their way until then.
    it = is_unused && now - *line.unused > kPatience ? lines_.erase(it) : std::next(it);
  }
}

void EnvLines::add_sockets(std::vector<wire::Socket*>& sockets) {
  end_unused();
  for (auto& [rank, line] : lines_) sockets.push_back(&line.socket);
}

uint64_t EnvLines::refused() const {
  uint64_t sum = 0;
  for (const auto& [rank, line] : lines_) sum += line.socket.refused();
  return sum;
}

std::optional<EnvLines::Heard> EnvLines::receive() {
  for (auto& [rank, line] : lines_) {
    auto message = line.socket.receive();
    if (!message) continue;
    line.mute.reset();
    const bool new_life = std::exchange(line.epoch, message->epoch()) != message->epoch();
    return Heard{rank, std::move(*message), new_life};
  }
  return std::nullopt;
}

bool EnvLines::answers(const Line& line, Time now) const { return !line.mute || now - *line.mute < kPatience; }

bool EnvLines::is_one_silent() const {
  const Time now = clock_.now();
  return std::any_of(lines_.begin(), lines_.end(), [&](const auto& entry) {
    const Line& line = entry.second;
    return !line.has_left && line.mute && now - *line.mute > kPause;
  });
}

std::optional<int> EnvLines::choose(const AgentEpisode& e) const {
  const Time now = clock_.now();
  const size_t count = lines_.size();
  size_t place = count - seed_ % std::max<size_t>(count, 1);  // where counting begins
  using Cost = std::tuple<bool, bool, size_t, bool, size_t>;
  std::optional<std::pair<Cost, int>> best;
  for (const auto& [rank, line] : lines_) {
    const size_t turn = place++ % count;
    if (line.has_left) continue;
    const bool is_present = e.env_server == rank;
    const Cost cost(!answers(line, now), now < line.full_until, line.episodes - (is_present ? 1 : 0), !is_present,
                    turn);
    if (!best || cost < best->first) best = {cost, rank};
  }
  return best ? std::optional(best->second) : std::nullopt;
}

void EnvLines::move(AgentEpisode& e, std::optional<int> server) {
  if (e.env_server) --lines_.at(*e.env_server).episodes;
  e.env_server = server;
  if (server) ++lines_.at(*server).episodes;
}

void EnvLines::send(Line& line, wire::Outgoing& message) {
  // What is lost is asked again; to one that is not connected nothing goes at all.
  const Status sent = line.socket.send("", message);
  if (!line.mute) line.mute = sent ? clock_.now() : clock_.now() - kPatience;
}

Status EnvLines::adopt(AgentEpisode& e, int server) {
  if (!lines_.contains(server))
    return Status::invalid(fmt::format("an episode came from env-{}, to which this rollout has no line", server));
  move(e, server);
  return {};
}

void EnvLines::ask(AgentEpisode& e) {
  drop(e);
  if (e.env_lease == 0) move(e, choose(e));
  if (!e.env_server) {
    e.ask_at = clock_.now() + kPause / 2;
    return;
  }
  e.request = ++last_request_;
  e.sends = 1;
  requests_[e.request] = e.lease.key.episode;
  repeat(e);
}

void EnvLines::repeat(AgentEpisode& e) {
  e.sent = clock_.now();
  wire::Outgoing message(e.request);
  write_env_request(e, run_dir_, message.body());
  send(lines_.at(*e.env_server), message);
}

void EnvLines::drop(AgentEpisode& e) { requests_.erase(std::exchange(e.request, 0)); }

void EnvLines::ask_elsewhere(AgentEpisode& e) {
  const Time now = clock_.now();
  lines_.at(*e.env_server).full_until = now + kPause;
  drop(e);
  e.ask_at = now;
  const auto server = choose(e);
  if (!server || now < lines_.at(*server).full_until) e.ask_at = now + kPause / 2;
}

bool EnvLines::is_stranded(const AgentEpisode& e) const {
  const Time now = clock_.now();
  if (!e.env_server || takes_new(lines_.at(*e.env_server), now)) return false;
  const auto server = choose(e);
  return server && answers(lines_.at(*server), now);
}

void EnvLines::release(AgentEpisode& e) {
  if (e.env_lease != 0) release(*e.env_server, std::exchange(e.env_lease, 0));
  move(e, std::nullopt);
}

void EnvLines::release(int server, uint64_t lease) {
  const auto found = lines_.find(server);
  if (found == lines_.end()) return;
  wire::Outgoing message;
  message.body().setRelease(lease);
  (void)found->second.socket.send("", message);  // a sandbox that nobody asks about is let go in time
}

void EnvLines::greet() {
  for (auto& [rank, line] : lines_) {
    wire::Outgoing message;
    message.body().initHello();
    send(line, message);
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
