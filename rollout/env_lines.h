// A rollout's connections to the environment servers of its run: picks a server for each episode, numbers requests,
// detects silent servers.
//
// Servers are known by their rank, and come and go while the run is on. The best one has the fewest episodes of this
// rollout, of those that answer and have room; one on the same machine is as good with some more. A server that said it
// has no room is left alone for a second. One that has left gets no new episodes, and its line ends after its last one.
// One that cannot be reached for two seconds is lost, with what it had: connections stand while a server lives, and are
// made again in half a second.
//
// Thread safety: none; belongs to the worker's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "rollout/books/events.h"
#include "wire/directory.h"
#include "wire/socket.h"

namespace tandem::rollout {

class EnvLines {
 public:
  using Connect = std::function<Result<wire::Socket>(const wire::Address&)>;
  using Load = std::map<int, size_t>;  // episodes of this rollout, by server

  // Rollouts with different `seed` begin with different servers. A server on the machine `near` (as the directory names
  // it; empty: none) is taken before another until it has kFar episodes more.
  static constexpr size_t kFar = 4;
  EnvLines(Connect connect, size_t seed, const Clock& clock, std::string near = "")
      : connect_(std::move(connect)), seed_(seed), clock_(clock), near_(std::move(near)) {}

  // Connects to the servers of the directory and drops all others. Returns the error of the first that cannot be
  // connected to; the rest are updated.
  Status follow(const wire::Directory& directory);
  // Closes connections to servers that have left, some time after their last episode.
  void end_unused(const Load& load);

  // Adds all sockets, to wait on. They are valid until the next call of another method.
  void add_sockets(std::vector<wire::Socket*>& sockets);
  uint64_t refused() const;
  bool knows(int server) const { return lines_.contains(server); }

  // The server for a new episode; empty where all have left or are lost.
  std::optional<int> best(const Load& load) const;
  // Whether any server answers and has room.
  bool has_room(const Load& load) const;
  // The server said that it has no room.
  void leave_alone(int server);

  // A request for an episode. It replaces earlier requests of the episode, whose answers are ignored.
  struct Request {
    EpisodeKey key;
    uint64_t ask = 0;
  };
  // Sends to a known server. The request may be lost.
  void send(int server, const Request& request, const std::function<void(wire::Body::Builder)>& write);
  // Ignores further answers for the episode.
  void drop(uint64_t episode);
  void release(int server, uint64_t sandbox);

  // The next message of any server.
  struct Heard {
    int server = 0;
    wire::Incoming message;
    bool is_new_life = false;        // it is the first of another life of the server
    std::optional<Request> request;  // that it answers
    Duration waited{};               // for it
  };
  std::optional<Heard> receive();

  // Servers that are silent or have left while another answers: an episode without a sandbox should ask that one.
  std::vector<int> silent() const;
  std::vector<int> lost() const;
  // Greets all servers where an answer is late: the epoch of their welcome shows whether they were restarted. At most
  // once a second.
  void greet_if_late();

 private:
  struct Line {
    wire::Socket socket;
    wire::Address address;
    std::string host;            // as the directory names it
    uint64_t epoch = 0;          // of the server that answered last
    Time full_until{};           // it said that it has no room
    std::optional<Time> mute;    // since when something that was sent has had no answer of any kind
    std::optional<Time> cut;     // since when nothing could be sent: there is no connection
    std::optional<Time> unused;  // since when it has left and no episode of ours is there
    bool has_left = false;
  };
  struct Sent {
    Request request;
    Time at{};
  };
  bool answers(const Line& line, Time now) const;
  bool is_lost(const Line& line, Time now) const;
  void send(Line& line, wire::Outgoing& message);

  const Connect connect_;
  std::map<int, Line> lines_;  // by rank
  const size_t seed_;
  const Clock& clock_;
  const std::string near_;
  std::map<uint64_t, Sent> sent_;  // requests without an answer, by number
  uint64_t last_number_ = 0;
  Time next_greeting_{};
};

}  // namespace tandem::rollout
