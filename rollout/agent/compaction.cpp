#include "rollout/agent/compaction.h"

#include <fmt/format.h>

#include "base/random.h"
#include "base/text.h"

namespace tandem::rollout {

bool is_compaction_due(const envs::Compaction& compaction, size_t tokens, uint32_t done) {
  return compaction.at > 0 && tokens > static_cast<size_t>(compaction.at) &&
         done < static_cast<uint32_t>(compaction.most);
}

Result<NextTurn> ask_for_summary(const Conversation& conversation, const envs::Compaction& compaction,
                                 std::span<const int32_t> turn, const Said& said, Reply reply, const Json& tools) {
  // The instruction of a next step stands in the next opening.
  reply.instruction = compaction.request;
  auto asked = conversation.next_turn(turn, said, reply, tools);
  if (asked || reply.results.empty()) return asked;
  reply.instruction.clear();
  reply.results.back() += "\n\n" + compaction.request;
  return conversation.next_turn(turn, said, reply, tools);
}

std::string summary_in(const Conversation& conversation, std::span<const int32_t> turn, const Json& tools) {
  const auto said = conversation.read(turn, tools);
  const auto words = trim(said.text);
  return std::string(words.empty() ? trim(conversation.text_of(turn)) : words);
}

envs::Opening opening_after(envs::Opening opening, const envs::Compaction& compaction, std::string_view summary,
                            std::string_view instruction) {
  // Templates want the user's messages and the model's in turns, so there is no message of its own for it.
  std::string& task = opening.messages.back().content;
  task += fmt::format("\n\n{}\n{}", compaction.heading, summary);
  if (!instruction.empty()) task += fmt::format("\n\n{}", instruction);
  return opening;
}

uint64_t seed_of_segment(uint64_t seed, size_t segment) {
  constexpr uint64_t kSegmentStream = 13;
  return segment == 0 ? seed : derive_seed(seed, {kSegmentStream, segment});
}

}  // namespace tandem::rollout
