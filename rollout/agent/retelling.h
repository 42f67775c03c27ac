// Converts the tokens of an episode back to messages.
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

// A segment of an episode whose conversation was summed up (compaction.h). The last turn of each but the last segment
// is the summary, and stands behind the request for it.
struct RetoldSegment {
  envs::Opening opening;
  std::vector<RetoldTurn> turns;  // `begin` counts from the first token of the segment
};

// `tokens` and `sampled` are of an episode that began with `opening`; `later_segments`: where segments begin in
// `tokens`, ascending. kInvalid, naming segment and turn, where the prompt is not the opening's, where the parts of a
// reply cannot be told apart, and for an episode that continued with the instruction of a later step of its task.
Result<std::vector<RetoldSegment>> retell_segments(const Conversation& conversation, const envs::Compaction& compaction,
                                                   const envs::Opening& opening, std::span<const int32_t> tokens,
                                                   std::span<const uint8_t> sampled,
                                                   std::span<const uint32_t> later_segments);

}  // namespace tandem::rollout
