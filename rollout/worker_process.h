// The rollout process from inside: an engine, the episodes that it plays, and its lines to the other roles. What it is
// for is in worker.h.
//
// Thread safety: none; one thread runs it. The engine's kernels have threads of their own.
#pragma once

#include <map>

#include "rollout/agent/conversation.h"
#include "rollout/books/lease.h"
#include "rollout/env_lines.h"
#include "rollout/weights_feed.h"
#include "rollout/worker.h"
#include "wire/coordinator_link.h"

namespace tandem::rollout {

class Worker {
 public:
  Worker(const WorkerSettings& settings, const Clock& clock, Engine engine, Conversation conversation,
         wire::CoordinatorLink link, wire::Socket trainer, EnvLines env, wire::Socket peers, zmq::context_t& context)
      : settings_(settings),
        clock_(clock),
        engine_(std::move(engine)),
        conversation_(std::move(conversation)),
        link_(std::move(link)),
        trainer_(std::move(trainer)),
        env_(std::move(env)),
        peers_(std::move(peers)),
        context_(context),
        feed_(engine_.format(), 0, settings.chunk_window, clock, [this] { return engine_.stage_weights(); }) {}

  void introduce(wire::Hello::Builder hello);
  Status run(const std::atomic<bool>& stop);

 private:
  // ---- worker.cpp: weights, leases, what is told about it ----
  Status take_weights();
  void pull();
  size_t active() const;
  std::string doing() const;
  Json metrics() const;

  // ---- worker_messages.cpp: what arrives, what is asked again ----
  void receive();
  void on_coordinator(const wire::Incoming& message);
  // Environment servers have come or gone.
  void on_peers(wire::Peers::Reader peers);
  void on_env(const EnvLines::Heard& heard);
  // An environment server has started anew: what was asked of its former life is asked again, and leases of then are
  // refused at once instead of being waited for.
  void ask_new_env(int server);
  // The answer to a request that was given up. A server gives the same lease to the same attempt, so it is let go only
  // where that attempt is not here, has gone to another server, or is on its way to another rollout.
  void on_unasked_lease(int server, wire::Acquired::Reader acquired);
  void send_trajectory(AgentEpisode& e);
  void send_commit(AgentEpisode& e);
  // The environment may be slow or gone; trainer and coordinator come back, and are asked until they do.
  void resend_late();

  // ---- worker_episodes.cpp: the life of an episode ----
  // Episodes whose weights are here ask for a sandbox, or for the answer to the turn that they were taken over in.
  void start_ready();
  void begin(AgentEpisode& e, wire::Acquired::Reader acquired);
  TurnRequest turn_request(const AgentEpisode& e) const;
  void record(const SampledToken& token);
  void on_called(AgentEpisode& e, wire::Called::Reader called);
  // An episode that began in another engine: all its tokens are a prompt here.
  Status adopt(const AgentEpisode& e, std::span<const int32_t> tokens);
  void ask_for_grade(AgentEpisode& e, std::string answer);
  // First the trainer has it on disk, then the coordinator hears of it.
  void deliver(AgentEpisode& e);
  void on_stored(const EpisodeKey& key);
  void commit(AgentEpisode& e);
  void hand_back(AgentEpisode& e, Outcome outcome, const std::string& reason);
  void forget(uint64_t id);

  // ---- worker_handover.cpp: copy, verify, switch owner ----
  // Episodes not begun go first, then those parked in a tool call: their state is tokens and a sandbox lease.
  void hand_over(wire::Steal::Reader steal);
  bool send_handover(AgentEpisode& e, const std::string& thief);
  // The other side never claimed it.
  void take_back(AgentEpisode& e);
  void on_handover(const wire::Incoming& message);
  void send_claim(AgentEpisode& e);
  // What was handed over has found its taker; the sandbox went with it.
  void on_gone(const EpisodeKey& key);
  void on_mine(const EpisodeKey& key);

  const WorkerSettings settings_;
  const Clock& clock_;
  Engine engine_;
  Conversation conversation_;
  wire::CoordinatorLink link_;
  wire::Socket trainer_;
  EnvLines env_;
  wire::Socket peers_;
  zmq::context_t& context_;
  std::map<std::string, wire::Socket> thieves_;  // lines to other rollouts, by address
  WeightsFeed feed_;
  std::map<uint64_t, AgentEpisode> episodes_;
  uint64_t finished_ = 0, swaps_ = 0, received_bytes_ = 0, handed_over_ = 0, taken_ = 0;
  uint32_t credits_announced_ = UINT32_MAX;
  Time next_resend_{}, next_env_hello_{};
  bool stopped_ = false;
  double idle_seconds_ = 0, tool_seconds_ = 0, fetch_seconds_ = 0, last_pause_ms_ = 0, max_pause_ms_ = 0;
};

}  // namespace tandem::rollout
