// The lines by which a receiver gets new weights: its relay's, where it has one, and the trainer's.
//
// One of the two is asked at a time (weights_sync/upstream.h), and only what that one says of versions is taken. Where
// a version is known that the relay does not have, it has `patience` to get it; then the trainer is asked.
//
// Thread safety: none; of the receiver's thread.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "rollout/weights_feed.h"
#include "weights_sync/upstream.h"
#include "wire/directory.h"

namespace tandem::rollout {

class WeightsSource {
 public:
  using Connect = std::function<Result<wire::Socket>(const wire::Address&)>;

  // `feed` and `clock` outlive it. Without `relay` it is the trainer's line alone.
  WeightsSource(WeightsFeed& feed, std::optional<wire::Peer> relay, Duration patience, const Clock& clock,
                Connect connect)
      : feed_(feed), relay_(relay), clock_(clock), connect_(std::move(connect)), upstream_(patience) {}

  // Connects to the relay where the directory has a new address of it. Errors of the connection; the trainer is asked
  // until it is there.
  Status follow(const wire::Directory& directory);
  void add_sockets(std::vector<wire::Socket*>& sockets);

  // There is this version.
  void know(uint64_t version);
  // A message of the trainer; others than those of weights are ignored.
  void on_trainer(const wire::Incoming& message);
  // What the relay has sent.
  void receive();
  // Asks for what is due, and decides whom.
  void tick(wire::Socket& trainer);

  bool asks_relay() const { return line_ && upstream_.source() == weights_sync::Upstream::Source::kRelay; }
  // The newest version by the last word of the one that is asked; 0 before any.
  uint64_t heard_of() const { return heard_of_; }
  // How often the trainer was asked as the relay failed.
  uint64_t relay_failures() const { return upstream_.given_up(); }
  uint64_t refused_messages() const { return refused_before_ + (line_ ? line_->refused() : 0); }

 private:
  void take(const wire::Incoming& message, bool is_asked);
  void step(const weights_sync::Upstream::Event& event);
  weights_sync::Upstream::Turn turn() const;

  WeightsFeed& feed_;
  const std::optional<wire::Peer> relay_;
  const Clock& clock_;
  const Connect connect_;
  weights_sync::Upstream upstream_;
  std::optional<wire::Socket> line_;
  std::optional<wire::Address> address_;  // of line_
  uint64_t refused_before_ = 0;           // by former lines
  uint64_t heard_of_ = 0;
};

}  // namespace tandem::rollout
