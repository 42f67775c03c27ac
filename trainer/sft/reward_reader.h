// Conversations into the tokens that a reward model reads, for those who ask one: written as they were in its training.
//
// Thread safety: const methods from any thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/reward_head.h"
#include "trainer/sft/chat_renderer.h"

namespace tandem::trainer {

// How a training writes conversations, as the head keeps it (model::RewardHead::notes): data.tool_calls and data.now.
std::map<std::string, std::string> reward_notes(std::string_view tool_calls, std::string_view now);

class RewardReader {
 public:
  // kInvalid where the head has notes that are not known here, or the model has no chat template.
  static Result<RewardReader> load(const fs::path& model, const model::RewardHead& head);

  // Of {"messages", "tools", "chat_template_kwargs"}, with a message of the assistant at least; other keys are passed
  // over. kInvalid in words for what cannot be written.
  Result<std::vector<int32_t>> tokens(const Json& conversation) const;
  // Of a conversation that was read.
  Result<std::vector<int32_t>> tokens(const Chat& chat) const;

 private:
  explicit RewardReader(ChatRenderer renderer) : renderer_(std::move(renderer)) {}
  ChatRenderer renderer_;
};

}  // namespace tandem::trainer
