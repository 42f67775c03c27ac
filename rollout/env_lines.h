// A rollout's lines to the environment servers of its run: which server an episode goes to, requests under numbers of
// their own, leases let go.
//
// An episode that has no sandbox yet goes to the server with the fewest episodes of this rollout, of those that answer
// and have room; from then on its requests go there. A server that said it has no room is left alone for a second.
//
// Thread safety: none; belongs to the worker's thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rollout/agent_episode.h"

namespace tandem::rollout {

class EnvLines {
 public:
  // `run_dir` is told to servers of many runs. Rollouts with different `seed` begin with different servers.
  EnvLines(std::vector<wire::Socket> sockets, std::string run_dir, size_t seed, const Clock& clock);

  // For waiting on all of them.
  void add_sockets(std::vector<wire::Socket*>& sockets);
  uint64_t refused() const;

  // The next message of any server, and its place in the list.
  struct Heard {
    size_t server = 0;
    wire::Incoming message;
    bool new_life = false;  // it is the first of another life of the server
  };
  std::optional<Heard> receive();

  // An episode that was taken over has its sandbox there. kInvalid where there is no such server.
  Status adopt(AgentEpisode& episode, size_t server);

  // Asks what the episode waits for, under a new number; an answer to the one before is no longer waited for.
  void ask(AgentEpisode& episode);
  // Asks the same again.
  void repeat(AgentEpisode& episode);
  // No answer is waited for any more.
  void drop(AgentEpisode& episode);
  // The episode's server said that it has no room: it asks another, or waits a little where none has.
  void ask_elsewhere(AgentEpisode& episode);
  // Whether its server is silent though another answers: what has no sandbox yet had better ask there.
  bool is_stranded(const AgentEpisode& episode) const;

  // Lets go of the episode's sandbox, if it has one.
  void release(AgentEpisode& episode);
  void release(size_t server, uint64_t lease);

  // Is each still who was asked? It answers with a welcome, and every answer carries its epoch.
  void greet();

  // The episode whose request a message answers; nothing where nobody waits for it.
  std::optional<uint64_t> episode_of(const wire::Incoming& message);

 private:
  struct Line {
    wire::Socket socket;
    uint64_t epoch = 0;        // of the server that answered last
    size_t episodes = 0;       // of ours that are there
    Time full_until{};         // it said that it has no room
    std::optional<Time> mute;  // since when something that was sent has had no answer of any kind
  };
  bool answers(const Line& line, Time now) const;
  // The server for an episode that has none; its present one where no other is better.
  size_t choose(const AgentEpisode& episode) const;
  void move(AgentEpisode& episode, std::optional<size_t> server);
  void send(size_t server, wire::Outgoing& message);

  std::vector<Line> lines_;
  const std::string run_dir_;
  const size_t first_;
  const Clock& clock_;
  std::map<uint64_t, uint64_t> requests_;  // number -> episode
  uint64_t last_request_ = 0;
};

}  // namespace tandem::rollout
