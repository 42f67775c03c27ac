// Samples the tokens of an agent's turns: with an engine of its own, or with one that many agents share.
//
// Thread safety: one turn of a conversation at a time; whether several conversations may be on is for the source to
// say.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <stop_token>
#include <string>

#include "rollout/engine/engine.h"

namespace tandem::rollout {

class TurnSource {
 public:
  virtual ~TurnSource() = default;
  // The longest conversation in tokens.
  virtual int max_tokens() const = 0;
  virtual std::string numerics_id() const = 0;
  // One turn after `tokens`, which are all of the conversation so far: those of its last turn and more behind them.
  // Each token is told on the calling thread as it comes, the last with `turn_ended`. kExhausted where there is no
  // room, kCancelled soon after `stop` was asked for.
  virtual Status sample(SequenceId conversation, std::span<const int32_t> tokens, const TurnRequest& request,
                        const std::function<void(const SampledToken&)>& on_token, const std::stop_token& stop) = 0;
  // Forgets a conversation.
  virtual void forget(SequenceId conversation) = 0;
};

// An engine that one thread owns.
class OwnEngine final : public TurnSource {
 public:
  explicit OwnEngine(Engine engine) : engine_(std::move(engine)) {}
  int max_tokens() const override { return engine_.settings().max_tokens; }
  std::string numerics_id() const override { return engine_.numerics_id(); }
  Status sample(SequenceId conversation, std::span<const int32_t> tokens, const TurnRequest& request,
                const std::function<void(const SampledToken&)>& on_token, const std::stop_token& stop) override;
  void forget(SequenceId conversation) override;

 private:
  Engine engine_;
  std::map<SequenceId, size_t> held_;  // tokens that the engine has
};

}  // namespace tandem::rollout
