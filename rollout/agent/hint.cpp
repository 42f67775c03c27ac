#include "rollout/agent/hint.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "base/utf8.h"

namespace tandem::rollout {

std::string hint_text(std::string_view text, std::string_view feedback) {
  std::string out;
  for (size_t at = 0;;) {
    const size_t found = text.find(kFeedback, at);
    out += text.substr(at, found - at);
    if (found == std::string_view::npos) return out;
    if (feedback.empty()) return "";
    out += feedback;
    at = found + kFeedback.size();
  }
}

Result<PromptHint> hint_of(const Conversation& conversation, const HintSettings& settings, const envs::Opening& opening,
                           std::span<const int32_t> prompt, std::string_view feedback) {
  constexpr std::string_view kCut = "...";
  const std::string whole = replace_invalid_utf8(trim(feedback));
  if (hint_text(settings.text, whole).empty()) return PromptHint();
  std::string said = whole;
  for (size_t left = whole.size();;) {
    envs::Opening hinted = opening;
    hinted.messages.back().content += "\n\n" + hint_text(settings.text, said);
    PromptHint hint = hint_between(prompt, TRY(conversation.prompt(hinted)));
    if (hint.tokens.size() <= settings.most_tokens) return hint;
    if (left == 0)
      return fail(Status::exhausted(fmt::format("a hint has {} tokens, and algorithm.teacher.hint_tokens is {}",
                                                hint.tokens.size(), settings.most_tokens)));
    // What is over, by the share of its tokens, and in any case less than before.
    left = std::min(left - 1, left * settings.most_tokens / hint.tokens.size());
    said = std::string(kCut) + replace_invalid_utf8(std::string_view(whole).substr(whole.size() - left));
  }
}

}  // namespace tandem::rollout
