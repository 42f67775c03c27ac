// Compaction of a conversation that outgrows its context: when the model is asked for a summary, and how the
// conversation continues from it. The same in training, evaluations and the agent.
//
// Thread safety: functions of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "envs/episodes/profile.h"
#include "rollout/agent/conversation.h"

namespace tandem::rollout {

// `tokens`: of the conversation, with those that its next turn would begin with. `done`: summaries so far.
bool is_compaction_due(const envs::Compaction& compaction, size_t tokens, uint32_t done);

// Tokens that follow `turn` instead of the next turn: the results of its calls, and the request for a summary. Where
// the template takes no user message after results, the request is appended to the last result. Errors are those of
// next_turn().
Result<NextTurn> ask_for_summary(const Conversation& conversation, const envs::Compaction& compaction,
                                 std::span<const int32_t> turn, const Said& said, Reply reply, const Json& tools);

// The summary in the model's turn: its text, or the whole turn where it has no text outside of calls (which are not
// run). Empty for an empty turn.
std::string summary_in(const Conversation& conversation, std::span<const int32_t> turn, const Json& tools);

// The opening with the summary after the task, followed by the instruction of a later step.
envs::Opening opening_after(envs::Opening opening, const envs::Compaction& compaction, std::string_view summary,
                            std::string_view instruction);

// The seed of a segment's draws, which depend on it and on positions that begin anew: the first has the episode's own.
uint64_t seed_of_segment(uint64_t seed, size_t segment);

}  // namespace tandem::rollout
