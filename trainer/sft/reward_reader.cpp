#include "trainer/sft/reward_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/iso_time.h"

namespace tandem::trainer {

namespace {

constexpr std::string_view kNotePrefix = "tandem.";  // other programs have notes of their own
constexpr const char *kToolCallsNote = "tandem.tool_calls", *kNowNote = "tandem.now";

}  // namespace

std::map<std::string, std::string> reward_notes(std::string_view tool_calls, std::string_view now) {
  std::map<std::string, std::string> notes = {{kToolCallsNote, std::string(tool_calls)}};
  if (!now.empty()) notes[kNowNote] = now;
  return notes;
}

Result<RewardReader> RewardReader::load(const fs::path& model, const model::RewardHead& head) {
  RenderingSettings settings;
  const auto wrong = [&](const std::string& name, const std::string& value) {
    return fail(Status::invalid(fmt::format("its note {} is \"{}\", which this version does not know",
                                            name.substr(0, 200), value.substr(0, 200)))
                    .at((model / model::kRewardHeadFile).string())
                    .hint("use the version of tandem that trained the head, or a newer one"));
  };
  for (const auto& [name, value] : head.notes) {
    if (!name.starts_with(kNotePrefix)) continue;
    if (name == kToolCallsNote && (value == "template" || value == "text")) {
      settings.calls = value == "text" ? CallWriting::kText : CallWriting::kTemplate;
    } else if (name == kNowNote && parse_iso_time(value)) {
      settings.now = parse_iso_time(value);
    } else {
      return wrong(name, value);
    }
  }
  return RewardReader(TRY(ChatRenderer::load(model, settings)));
}

Result<std::vector<int32_t>> RewardReader::tokens(const Json& conversation) const {
  return tokens(TRY(read_chat(conversation, Reading::kAsItIs)));
}

Result<std::vector<int32_t>> RewardReader::tokens(const Chat& chat) const {
  auto read = renderer_.answered(chat);
  const bool has_calls = !chat.tools.is_null() || std::ranges::any_of(chat.messages, [](const Json& message) {
    return message.contains("tool_calls");
  });
  // Who asks cannot set what the training was told.
  if (!read && has_calls && !renderer_.writes_calls()) {
    return fail(std::move(read).error().hint(
        "the reward model was trained without tool calls: train one with data.tool_calls=text"));
  }
  return TRY(std::move(read)).tokens;
}

}  // namespace tandem::trainer
