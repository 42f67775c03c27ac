#include "rollout/env_lines.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace tandem::rollout {

using namespace std::chrono_literals;

namespace {

constexpr auto kPause = 1000ms;  // in which a server without room is left alone
constexpr auto kPatience = 5s;   // then one that says nothing counts as silent
constexpr auto kCut = 2s;        // then one without a connection counts as lost

}  // namespace

Status EnvLines::follow(const wire::Directory& directory) {
  Status trouble;
  for (auto& [rank, line] : lines_) {
    const bool is_listed = directory.find({wire::Role::kEnv, rank}) != nullptr;
    // One that is back has a chance, whatever it was like when it left.
    if (is_listed && line.has_left) line.mute.reset(), line.cut.reset(), line.full_until = {};
    line.has_left = !is_listed;
  }
  for (const wire::Peer& peer : directory.all(wire::Role::kEnv)) {
    const auto& [address, host, epoch] = *directory.find(peer);
    const auto found = lines_.find(peer.rank);
    if (found != lines_.end() && found->second.address == address) continue;
    auto socket = connect_(address);
    if (!socket) {
      if (found != lines_.end()) found->second.has_left = true;
      if (trouble) trouble = std::move(socket).error().at(to_string(peer));
      continue;
    }
    Line line{.socket = std::move(*socket),
              .address = address,
              .host = host,
              .full_until = {},
              .mute = {},
              .cut = {},
              .unused = {}};
    if (found == lines_.end()) {
      lines_.emplace(peer.rank, std::move(line));
    } else {
      found->second = std::move(line);  // what it has of ours is asked for again when it says who it is now
    }
  }
  return trouble;
}

void EnvLines::end_unused(const Load& load) {
  const Time now = clock_.now();
  for (auto it = lines_.begin(); it != lines_.end();) {
    auto& [rank, line] = *it;
    const bool is_unused = line.has_left && !load.contains(rank);
    if (!is_unused) line.unused.reset();
    if (is_unused && !line.unused) line.unused = now;
    // Leases that were let go of are on their way until then.
    it = is_unused && now - *line.unused > kPatience ? lines_.erase(it) : std::next(it);
  }
}

void EnvLines::add_sockets(std::vector<wire::Socket*>& sockets) {
  for (auto& [rank, line] : lines_) sockets.push_back(&line.socket);
}

uint64_t EnvLines::refused() const {
  uint64_t sum = 0;
  for (const auto& [rank, line] : lines_) sum += line.socket.refused();
  return sum;
}

bool EnvLines::answers(const Line& line, Time now) const { return !line.mute || now - *line.mute < kPatience; }

bool EnvLines::is_lost(const Line& line, Time now) const { return line.cut && now - *line.cut >= kCut; }

std::optional<int> EnvLines::best(const Load& load) const {
  const Time now = clock_.now();
  const size_t count = lines_.size();
  size_t place = count - seed_ % std::max<size_t>(count, 1);  // where counting begins
  using Cost = std::tuple<bool, bool, size_t, size_t>;
  std::optional<std::pair<Cost, int>> best;
  for (const auto& [rank, line] : lines_) {
    const size_t turn = place++ % count;
    if (line.has_left || is_lost(line, now)) continue;
    const auto episodes = load.find(rank);
    const size_t far = near_.empty() || line.host == near_ ? 0 : kFar;
    const Cost cost(!answers(line, now), now < line.full_until, far + (episodes == load.end() ? 0 : episodes->second),
                    turn);
    if (!best || cost < best->first) best = {cost, rank};
  }
  return best ? std::optional(best->second) : std::nullopt;
}

bool EnvLines::has_room(const Load& load) const {
  const auto server = best(load);
  return server && clock_.now() >= lines_.at(*server).full_until;
}

void EnvLines::leave_alone(int server) {
  if (const auto found = lines_.find(server); found != lines_.end()) found->second.full_until = clock_.now() + kPause;
}

void EnvLines::send(Line& line, wire::Outgoing& message) {
  // What is lost is asked again; to one that is not connected nothing goes at all.
  const Status sent = line.socket.send("", message);
  const Time now = clock_.now();
  if (!line.mute) line.mute = sent ? now : now - kPatience;
  if (sent)
    line.cut.reset();
  else if (!line.cut)
    line.cut = now;
}

void EnvLines::send(int server, const Request& request, const std::function<void(wire::Body::Builder)>& write) {
  std::erase_if(sent_, [&](const auto& entry) {
    const Request& other = entry.second.request;
    return other.key.episode == request.key.episode && (other.key != request.key || other.ask != request.ask);
  });
  sent_[++last_number_] = {request, clock_.now()};
  wire::Outgoing message(last_number_);
  write(message.body());
  send(lines_.at(server), message);
}

void EnvLines::drop(uint64_t episode) {
  std::erase_if(sent_, [&](const auto& entry) { return entry.second.request.key.episode == episode; });
}

void EnvLines::release(int server, uint64_t sandbox) {
  const auto found = lines_.find(server);
  if (found == lines_.end()) return;
  wire::Outgoing message;
  message.body().setRelease(sandbox);
  (void)found->second.socket.send("", message);  // a sandbox that nobody asks about is let go in time
}

std::optional<EnvLines::Heard> EnvLines::receive() {
  for (auto& [rank, line] : lines_) {
    auto message = line.socket.receive();
    if (!message) continue;
    line.mute.reset();
    line.cut.reset();
    Heard heard{.server = rank, .message = std::move(*message), .request = {}};
    heard.is_new_life = std::exchange(line.epoch, heard.message.epoch()) != heard.message.epoch();
    if (const auto asked = sent_.find(heard.message.id()); asked != sent_.end()) {
      heard.request = asked->second.request;
      heard.waited = clock_.now() - asked->second.at;
      drop(heard.request->key.episode);
    }
    return heard;
  }
  return std::nullopt;
}

std::vector<int> EnvLines::silent() const {
  const Time now = clock_.now();
  std::vector<int> silent;
  bool one_answers = false;
  for (const auto& [rank, line] : lines_) {
    if (line.has_left || !answers(line, now))
      silent.push_back(rank);
    else
      one_answers = true;
  }
  return one_answers ? silent : std::vector<int>();
}

std::vector<int> EnvLines::lost() const {
  const Time now = clock_.now();
  std::vector<int> lost;
  for (const auto& [rank, line] : lines_) {
    if (is_lost(line, now)) lost.push_back(rank);
  }
  return lost;
}

void EnvLines::greet_if_late() {
  const Time now = clock_.now();
  const bool is_one_late =
      std::any_of(sent_.begin(), sent_.end(), [&](const auto& entry) { return now - entry.second.at > kPause; }) ||
      std::any_of(lines_.begin(), lines_.end(), [&](const auto& entry) {
        const Line& line = entry.second;
        return !line.has_left && line.mute && now - *line.mute > kPause;
      });
  if (!is_one_late || now < next_greeting_) return;
  next_greeting_ = now + kPause;
  for (auto& [rank, line] : lines_) {
    wire::Outgoing message;
    message.body().initHello();
    send(line, message);
  }
}

}  // namespace tandem::rollout
