// The next state after a message of the model, and after its calls: the same rules in training and in production.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::rollout {

enum class AfterMessage : uint8_t { kRunCalls, kAnswered, kTruncated };
// `cut`: it ended on a limit and not by itself. Calls of such a message are not run: the last of them may be half a
// call.
inline AfterMessage after_message(bool cut, size_t calls) {
  if (cut) return AfterMessage::kTruncated;
  return calls == 0 ? AfterMessage::kAnswered : AfterMessage::kRunCalls;
}

enum class AfterCalls : uint8_t { kNextTurn, kOver, kTruncated };
// `over`: the task ends on what the calls did. `turns`: messages so far.
inline AfterCalls after_calls(bool over, uint32_t turns, uint32_t max_turns) {
  if (over) return AfterCalls::kOver;
  return turns >= max_turns ? AfterCalls::kTruncated : AfterCalls::kNextTurn;
}

}  // namespace tandem::rollout
