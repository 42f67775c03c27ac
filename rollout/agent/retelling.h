// The tokens of an episode as messages again.
//
// An episode is kept as tokens (rollout/agent/conversation.h); data sets of others want messages. What the model said
// is read by its dialect, as it was while the episode was on. What came between two turns is found by writing it with
// marks in place of the results, and is then written again: only where this gives the recorded tokens, bit by bit, is
// it told.
//
// Thread safety: a function of its arguments.
#pragma once

#include <span>
#include <vector>

#include "rollout/agent/conversation.h"

namespace tandem::rollout {

struct RetoldTurn {
  std::vector<int32_t> tokens;  // sampled, the end token among them where it was sampled
  size_t begin = 0;             // of its first token in the episode
  Said said;
  Reply reply;  // of the last turn often nothing follows
};

// `tokens` and `sampled` of an episode that began with `opening`. kInvalid where the prompt is not the opening's, or
// where what follows a turn cannot be told apart; the error names the turn.
Result<std::vector<RetoldTurn>> retell(const Conversation& conversation, const envs::Opening& opening,
                                       std::span<const int32_t> tokens, std::span<const uint8_t> sampled);

}  // namespace tandem::rollout
