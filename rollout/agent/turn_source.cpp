#include "rollout/agent/turn_source.h"

#include <fmt/format.h>

namespace tandem::rollout {

Status OwnEngine::sample(SequenceId conversation, std::span<const int32_t> tokens, const TurnRequest& request,
                         const std::function<void(const SampledToken&)>& on_token, const std::stop_token& stop) {
  size_t& held = held_[conversation];
  if (static_cast<int>(tokens.size()) >= max_tokens())
    return Status::exhausted(fmt::format("{} tokens, and there is room for {}", tokens.size(), max_tokens()));
  TRY(engine_.knows(conversation) ? engine_.extend(conversation, tokens.subspan(held), request)
                                  : engine_.add(conversation, {tokens.begin(), tokens.end()}, request));
  held = tokens.size();
  for (bool ended = false; !ended;) {
    if (stop.stop_requested()) return Status::cancelled("the turn was cancelled");
    for (const SampledToken& token : TRY(engine_.step())) {
      ++held;
      ended = token.turn_ended;
      on_token(token);
    }
  }
  return {};
}

void OwnEngine::forget(SequenceId conversation) {
  engine_.release(conversation);
  held_.erase(conversation);
}

}  // namespace tandem::rollout
