// The hint of an episode that is over: a text behind its task, with which the model is its own teacher
// (trainer/learn/hints.h).
//
// Thread safety: functions of their arguments.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/prompt_hint.h"
#include "rollout/agent/conversation.h"

namespace tandem::rollout {

// Stands for the feedback in the text of a hint.
inline constexpr std::string_view kFeedback = "{feedback}";

struct HintSettings {
  std::string text;          // empty: there are no hints
  size_t most_tokens = 512;  // that a hint adds to a prompt
  bool any() const { return !text.empty(); }
};

// The text with the feedback in its place. Empty where the text asks for feedback and there is none.
std::string hint_text(std::string_view text, std::string_view feedback);

// The hint in the prompt, which the opening was written as. Of feedback the end is kept that there is room for.
// Empty where there is nothing to say. kExhausted where even without feedback it has too many tokens; else the errors
// of Conversation::prompt.
Result<PromptHint> hint_of(const Conversation& conversation, const HintSettings& settings, const envs::Opening& opening,
                           std::span<const int32_t> prompt, std::string_view feedback);

}  // namespace tandem::rollout
