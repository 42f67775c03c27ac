// A rollout's line to the environment server: requests of episodes, each under a number of its own, and leases let go.
//
// Thread safety: none; belongs to the worker's thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "rollout/agent_episode.h"

namespace tandem::rollout {

class EnvLine {
 public:
  EnvLine(wire::Socket socket, const Clock& clock) : socket_(std::move(socket)), clock_(clock) {}

  wire::Socket& socket() { return socket_; }
  uint64_t refused() const { return socket_.refused(); }

  // Asks what the episode waits for, under a new number; an answer to the one before is no longer waited for.
  void ask(AgentEpisode& episode);
  // Asks the same again.
  void repeat(AgentEpisode& episode);
  // No answer is waited for any more.
  void drop(AgentEpisode& episode);

  // Lets go of the episode's sandbox, if it has one.
  void release(AgentEpisode& episode);
  void release(uint64_t lease);

  // Is it still who was asked? It answers with a welcome, and every answer carries its epoch.
  void greet();
  // Whether `message` is the first of another life of the server.
  bool is_new_life(const wire::Incoming& message);

  // The episode whose request a message answers; nothing where nobody waits for it.
  std::optional<uint64_t> episode_of(const wire::Incoming& message);

 private:
  wire::Socket socket_;
  const Clock& clock_;
  std::map<uint64_t, uint64_t> requests_;  // number -> episode
  uint64_t last_request_ = 0;
  uint64_t epoch_ = 0;  // of the server that answered last
};

}  // namespace tandem::rollout
