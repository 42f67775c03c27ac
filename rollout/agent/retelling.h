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

#include "envs/episodes/profile.h"
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

// A segment of an episode whose conversation was summed up (compaction.h). The last turn of each but the last segment
// is the summary, and stands behind the request for it.
struct RetoldSegment {
  envs::Opening opening;
  std::vector<RetoldTurn> turns;  // `begin` counts from the first token of the segment
};

// `later_segments`: where segments begin in `tokens`, ascending; the errors of retell() name the segment, too. An
// episode that went on with the instruction of a later step of its task is one of them.
Result<std::vector<RetoldSegment>> retell_segments(const Conversation& conversation, const envs::Compaction& compaction,
                                                   const envs::Opening& opening, std::span<const int32_t> tokens,
                                                   std::span<const uint8_t> sampled,
                                                   std::span<const uint32_t> later_segments);

}  // namespace tandem::rollout
