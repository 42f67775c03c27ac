// The implementation of worker.h: an engine, the episodes that it plays, and its connections to the other roles.
//
// Thread safety: none; one thread runs it. The engine's kernels have threads of their own.
#pragma once

#include <map>

#include "base/turns.h"
#include "rollout/agent/conversation.h"
#include "rollout/books/lease.h"
#include "rollout/env_lines.h"
#include "rollout/episode.h"
#include "rollout/weights_source.h"
#include "rollout/worker.h"
#include "wire/coordinator_link.h"

namespace tandem::rollout {

class Worker {
 public:
  Worker(const WorkerSettings& settings, const Clock& clock, Engine engine, Conversation conversation,
         wire::CoordinatorLink link, wire::Socket trainer, EnvLines env, wire::Socket peers, zmq::context_t& context,
         weights_sync::Held held, std::optional<Turns> turns, WeightsSource::Connect connect)
      : settings_(settings),
        clock_(clock),
        engine_(std::move(engine)),
        conversation_(std::move(conversation)),
        link_(std::move(link)),
        trainer_(std::move(trainer)),
        env_(std::move(env)),
        peers_(std::move(peers)),
        context_(context),
        turns_(std::move(turns)),
        feed_(std::move(held), settings.chunk_window, settings.place.threads, clock,
              [this] { return engine_.stage_weights(); }),
        source_(feed_, settings.relay, from_seconds(settings.relay_seconds), clock, std::move(connect)) {}

  void introduce(wire::Hello::Builder hello);
  // Connects to the relay, as far as the directory of the settings knows it; before run().
  Status find_relay() { return source_.follow(settings_.directory); }
  // Weights that the trainer stores are read there; before run().
  void read_weights_from(const weights_sync::StoreSettings& settings);
  Status run(const std::atomic<bool>& stop);

 private:
  // ---- worker.cpp: weights, leases, what is told about it ----
  // Sleeps while the trainer has the device, and wakes afterwards.
  Status take_turns();
  Status take_weights();
  // Releases all episodes; the coordinator gives them to others when this process is lost.
  void let_go();
  void pull();
  // Sends a tick to every episode.
  void tick();
  size_t active() const;
  EnvLines::Load env_load() const;
  Episode::Settings episode_settings(const std::string& kind) const;
  std::string doing() const;
  Json metrics() const;

  // ---- worker_branches.cpp: episodes that begin as one ---- Decides which episodes play a trunk, which wait for one,
  // and which trunks have all their branches.
  void settle_trunks();
  std::vector<Episode*> waiting_for_trunk(const Episode& of);
  // Whether other episodes of its family need it as their trunk, or it needs the sandbox of one.
  bool holds_trunk(const Episode& e);

  // ---- worker_messages.cpp: messages in, events of episodes out ----
  void receive();
  void on_coordinator(const wire::Incoming& message);
  void on_grant(LeaseTerms lease);
  void on_handover(const wire::Incoming& message);
  // Environment servers have joined or left.
  void on_peers(wire::Peers::Reader peers);
  void on_env(const EnvLines::Heard& heard);
  void on_sandbox(int server, wire::Acquired::Reader acquired);

  // ---- worker_actions.cpp: actions of episodes in, work and messages out ----
  void step(Episode& e, const Episode::Event& event);
  // Ignored where that attempt is not here. Forgets the episode where it is over. Only what names a key ends an
  // episode.
  void step(const EpisodeKey& key, const Episode::Event& event);
  void step_all(const Episode::Event& event);
  Episode* find(const EpisodeKey& key);  // null where that attempt is not here
  void carry_out(Episode& e, const Episode::Acquire& acquire);
  void carry_out(Episode& e, const Episode::Call& call);
  void carry_out(Episode& e, const Episode::Score& score);
  void carry_out(Episode& e, const Episode::Release& release);
  void carry_out(Episode& e, const Episode::Open& open);
  void carry_out(Episode& e, const Episode::Continue& next);
  void carry_out(Episode& e, const Episode::Resume&);
  void carry_out(Episode& e, const Episode::EndSampling&);
  void carry_out(Episode& e, const Episode::SendTrajectory&);
  void carry_out(Episode& e, const Episode::SendCommit& send);
  void carry_out(Episode& e, const Episode::HandOver& to);
  void carry_out(Episode& e, const Episode::SendClaim&);
  void carry_out(Episode& e, const Episode::Fork& fork);
  void carry_out(Episode& e, const Episode::EndTrunk&);
  void carry_out(Episode& e, const Episode::Note& note);
  void carry_out(Episode& e, const Episode::Over& over);
  void record(SampledToken& token);
  TurnRequest turn_request(const Episode& e) const;
  // Adds an episode that began in another engine: all its tokens are a prompt here.
  Status adopt(const Episode& e, std::span<const int32_t> tokens);
  // Episodes not begun go first, then those parked in a tool call.
  void hand_over(wire::Steal::Reader steal);
  void hand_over_running(uint32_t count, const std::string& thief);

  const WorkerSettings settings_;
  const Clock& clock_;
  Engine engine_;
  Conversation conversation_;
  wire::CoordinatorLink link_;
  wire::Socket trainer_;
  EnvLines env_;
  wire::Socket peers_;
  zmq::context_t& context_;
  std::optional<Turns> turns_;                   // at the device, with the trainer
  std::map<std::string, wire::Socket> thieves_;  // lines to other rollouts, by address
  WeightsFeed feed_;
  WeightsSource source_;
  // Sandboxes, by server and lease, that went to other rollouts with their episodes; the newest.
  static constexpr size_t kMostHandedSandboxes = 4096;
  std::map<EpisodeKey, std::pair<int, uint64_t>> handed_sandboxes_;
  std::map<uint64_t, Episode> episodes_;
  uint64_t finished_ = 0, swaps_ = 0, sleeps_ = 0, received_bytes_ = 0, handed_over_ = 0, handed_over_running_ = 0,
           taken_ = 0;
  uint32_t credits_announced_ = UINT32_MAX;
  Time next_env_check_{};
  bool stopped_ = false;
  double idle_seconds_ = 0, tool_seconds_ = 0, fetch_seconds_ = 0, prepare_seconds_ = 0, last_pause_ms_ = 0,
         max_pause_ms_ = 0;
};

}  // namespace tandem::rollout
