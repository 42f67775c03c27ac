// A conversation that outgrows its room: when the model is asked to sum it up, and how it goes on from its summary. The
// same in training, in evaluations and in the agent.
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

// What follows `turn` instead of the next one: the results of its calls, and the request. Where the template takes no
// message of the user's behind results, the request stands at the end of the last of them. Fails as next_turn().
Result<NextTurn> ask_for_summary(const Conversation& conversation, const envs::Compaction& compaction,
                                 std::span<const int32_t> turn, const Said& said, Reply reply, const Json& tools);

// What the model said when it was asked: its words, or the whole turn where there are none outside of calls, which are
// not run. Empty where it said nothing at all.
std::string summary_in(const Conversation& conversation, std::span<const int32_t> turn, const Json& tools);

// The opening once more, with the summary behind the task, and the instruction of a later step of it behind that.
envs::Opening opening_after(envs::Opening opening, const envs::Compaction& compaction, std::string_view summary,
                            std::string_view instruction);

// The seed of a segment's draws, which depend on it and on positions that begin anew: the first has the episode's own.
uint64_t seed_of_segment(uint64_t seed, size_t segment);

}  // namespace tandem::rollout
