// A rollout's lines to the environment servers of its run: which server an episode goes to, requests under numbers of
// their own, leases let go.
//
// Servers are known by their rank, and come and go while the run is on. An episode that has no sandbox yet goes to the
// server with the fewest episodes of this rollout, of those that answer and have room; from then on its requests go
// there. A server that said it has no room is left alone for a second. One that has left gets no new episodes, and its
// line ends after its last one.
//
// Thread safety: none; belongs to the worker's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rollout/agent_episode.h"
#include "wire/directory.h"

namespace tandem::rollout {

class EnvLines {
 public:
  using Connect = std::function<Result<wire::Socket>(const wire::Address&)>;

  // `run_dir` is told to servers of many runs. Rollouts with different `seed` begin with different servers.
  EnvLines(Connect connect, std::string run_dir, size_t seed, const Clock& clock)
      : connect_(std::move(connect)), run_dir_(std::move(run_dir)), seed_(seed), clock_(clock) {}

  // The servers are now those of the directory. Error: of the first that cannot be connected to; it is left out, and
  // the others are as the directory says.
  Status follow(const wire::Directory& directory);

  // For waiting on all of them, until the next call of something else.
  void add_sockets(std::vector<wire::Socket*>& sockets);
  uint64_t refused() const;

  // The next message of any server, and its rank.
  struct Heard {
    int server = 0;
    wire::Incoming message;
    bool new_life = false;  // it is the first of another life of the server
  };
  std::optional<Heard> receive();

  // An episode that was taken over has its sandbox there. kInvalid where there is no line to such a server.
  Status adopt(AgentEpisode& episode, int server);

  // Asks what the episode waits for, under a new number; an answer to the one before is no longer waited for. Where all
  // servers have left, it asks later.
  void ask(AgentEpisode& episode);
  // Asks the same again.
  void repeat(AgentEpisode& episode);
  // No answer is waited for any more.
  void drop(AgentEpisode& episode);
  // The episode's server said that it has no room: it asks another, or waits a little where none has.
  void ask_elsewhere(AgentEpisode& episode);
  // Whether its server is silent or has left though another answers: what has no sandbox yet had better ask there.
  bool is_stranded(const AgentEpisode& episode) const;

  // Lets go of the episode's sandbox, if it has one.
  void release(AgentEpisode& episode);
  void release(int server, uint64_t lease);

  // Is each still who was asked? It answers with a welcome, and every answer carries its epoch.
  void greet();
  // Whether a server has been silent for a second: it gets no episodes until it is greeted and answers.
  bool is_one_silent() const;

  // The episode whose request a message answers; nothing where nobody waits for it.
  std::optional<uint64_t> episode_of(const wire::Incoming& message);

 private:
  struct Line {
    wire::Socket socket;
    wire::Address address;
    uint64_t epoch = 0;          // of the server that answered last
    size_t episodes = 0;         // of ours that are there
    Time full_until{};           // it said that it has no room
    std::optional<Time> mute;    // since when something that was sent has had no answer of any kind
    std::optional<Time> unused;  // since when it has left and no episode of ours is there
    bool has_left = false;
  };
  bool answers(const Line& line, Time now) const;
  bool takes_new(const Line& line, Time now) const { return !line.has_left && answers(line, now); }
  // The server for an episode that has none; its present one where no other is better. Nothing where all have left.
  std::optional<int> choose(const AgentEpisode& episode) const;
  void move(AgentEpisode& episode, std::optional<int> server);
  void send(Line& line, wire::Outgoing& message);
  // Ends lines that nothing is waited for on.
  void end_unused();

  const Connect connect_;
  std::map<int, Line> lines_;  // by rank
  const std::string run_dir_;
  const size_t seed_;
  const Clock& clock_;
  std::map<uint64_t, uint64_t> requests_;  // number -> episode
  uint64_t last_request_ = 0;
};

}  // namespace tandem::rollout
