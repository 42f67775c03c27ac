#include "trainer/sft/preference.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"

namespace tandem::trainer {

namespace {

constexpr std::array<std::string_view, 7> kPreferenceKeys = {
    "prompt", "chosen", "rejected", "tools", "messages", "chat_template_kwargs", "margin"};
constexpr double kLargestMargin = 1e6;

bool is_assistants(const Json& message) { return message.is_object() && message.value("role", Json()) == "assistant"; }

// The messages of an answer; an empty list where it is none.
Json messages_of(const Json& answer) {
  if (answer.is_string()) return Json::array({{{"role", "assistant"}, {"content", answer}}});
  if (answer.is_object()) return Json::array({answer});
  return answer.is_array() ? answer : Json::array();
}

Result<Json> prompt_of(const Json& json) {
  const Json prompt = json.value("prompt", Json());
  if (prompt.is_string()) return Json::array({{{"role", "user"}, {"content", prompt}}});
  if (prompt.is_array() && !prompt.empty()) return prompt;
  return fail(Status::invalid("has no prompt: neither a text nor a list of messages")
                  .hint("or let chosen and rejected be whole conversations, from the first message on"));
}

// The prompt and one answer, of which the messages from `begin` on are learned from.
Result<Chat> chat_of(const Json& json, Json messages, size_t begin, const char* name) {
  if (begin >= messages.size()) return fail(Status::invalid(fmt::format("{} has no message behind the prompt", name)));
  if (!is_assistants(messages[begin]))
    return fail(Status::invalid(fmt::format("{} does not begin with a message of the assistant", name)));
  for (size_t i = 0; i < begin; ++i) {
    if (is_assistants(messages[i])) messages[i]["weight"] = 0;
  }
  Json transcript = {{"messages", std::move(messages)}};
  for (const char* key : {"tools", "chat_template_kwargs"}) {
    if (json.contains(key)) transcript[key] = json[key];
  }
  auto chat = read_chat(transcript);
  if (!chat) return fail(std::move(chat).error().at(name));
  if (!chat->is_learned())
    return fail(Status::invalid(fmt::format("{} has weight 0 throughout: there is nothing to learn from", name)));
  return chat;
}

}  // namespace

Result<Preference> read_preference(const Json& json) {
  if (!json.is_object()) return fail(Status::invalid("is not an object"));
  for (const char* name : {"chosen", "rejected"}) {
    if (json.contains(name)) continue;
    if (json.contains("messages"))
      return fail(Status::invalid("is a transcript, not a pair of answers").hint("name its file in data.train"));
    std::string close;
    for (const auto& [key, value] : json.items()) {
      if (close.empty() && std::ranges::find(kPreferenceKeys, key) == kPreferenceKeys.end())
        close = did_you_mean(key, std::array<std::string_view, 1>{name});
    }
    return fail(Status::invalid(fmt::format("has no \"{}\"{}", name, close)));
  }
  Json chosen = messages_of(json["chosen"]), rejected = messages_of(json["rejected"]);
  for (const auto& [name, messages] : {std::pair{"chosen", &chosen}, {"rejected", &rejected}}) {
    if (messages->empty())
      return fail(Status::invalid(fmt::format("{} is neither a text nor a message nor a list of them", name)));
  }
  if (chosen == rejected) return fail(Status::invalid("chosen and rejected are the same: nothing is preferred"));
  size_t begin = 0;
  if (is_assistants(chosen.front()) && is_assistants(rejected.front())) {
    const Json prompt = TRY(prompt_of(json));
    begin = prompt.size();
    for (Json* answer : {&chosen, &rejected}) {
      Json whole = prompt;
      for (const Json& message : *answer) whole.push_back(message);
      *answer = std::move(whole);
    }
  } else {
    begin = static_cast<size_t>(std::ranges::mismatch(chosen, rejected).in1 - chosen.begin());
    // An answer that the other one goes on from: its last message is learned from as theirs is.
    while (begin > 0 && (begin == chosen.size() || begin == rejected.size())) --begin;
    if (begin == 0) return fail(Status::invalid("chosen and rejected have no message in common: there is no prompt"));
  }
  auto better = TRY(chat_of(json, std::move(chosen), begin, "chosen"));
  auto worse = TRY(chat_of(json, std::move(rejected), begin, "rejected"));
  return Preference{std::move(better), std::move(worse)};
}

Result<std::optional<double>> read_margin(const Json& json) {
  const Json margin = json.is_object() ? json.value("margin", Json()) : Json();
  if (margin.is_null()) return std::optional<double>();
  if (margin.is_number() && std::abs(margin.get<double>()) <= kLargestMargin)
    return std::optional(margin.get<double>());
  return fail(
      Status::invalid(fmt::format("margin is {}, not a number within {:.0f}", dump_json(margin), kLargestMargin)));
}

}  // namespace tandem::trainer
