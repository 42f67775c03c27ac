#include "rollout/agent/conversation.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::rollout {

namespace {
// Stands for what the model said; no template changes it.
constexpr std::string_view kSaid = "SAID-BY-THE-MODEL";
}  // namespace

Result<Conversation> Conversation::load(const fs::path& directory) {
  Conversation c(TRY(model::read_config(directory)), TRY(model::Tokenizer::load(directory)),
                 TRY(model::ChatTemplate::load(directory)));
  const std::string text = TRY(c.render({{"system", "s"}, {"user", "u"}, {"assistant", std::string(kSaid)}}, false));
  const auto after = std::string_view(text).substr(std::min(text.size(), text.find(kSaid) + kSaid.size()));
  for (const int32_t token : c.config_.eos_tokens) {
    const auto name = c.tokenizer_.name_of(token);
    if (name.empty() || !after.starts_with(name)) continue;
    c.end_text_ = name;
    c.end_token_ = token;
    return c;
  }
  return fail(Status::invalid("the chat template does not end an assistant's message with an end token of the model")
                  .at(directory.string())
                  .hint("set eos_token_id in generation_config.json to the token that ends a turn"));
}

Result<std::string> Conversation::render(const std::vector<ChatMessage>& messages, bool open_turn) const {
  Json list = Json::array();
  for (const ChatMessage& message : messages) list.push_back({{"role", message.role}, {"content", message.content}});
  model::RenderOptions options;
  options.add_generation_prompt = open_turn;
  return TRY(template_.render(list, Json(), options)).text;
}

Result<std::vector<int32_t>> Conversation::prompt(const std::vector<ChatMessage>& messages) const {
  return tokenizer_.encode(TRY(render(messages, true)), model::AddSpecial::kNo);
}

Result<std::vector<int32_t>> Conversation::next_turn(const ChatMessage& message) const {
  const std::string text =
      TRY(render({{"system", "s"}, {"user", "u"}, {"assistant", std::string(kSaid)}, message}, true));
  const std::string marker = std::string(kSaid) + end_text_;
  const size_t place = text.find(marker);
  if (place == std::string::npos)
    return fail(Status::invalid("the chat template changes an assistant's message when another follows"));
  return tokenizer_.encode(std::string_view(text).substr(place + marker.size()), model::AddSpecial::kNo);
}

std::string Conversation::text_of(std::span<const int32_t> tokens) const {
  while (!tokens.empty() &&
         std::find(config_.eos_tokens.begin(), config_.eos_tokens.end(), tokens.back()) != config_.eos_tokens.end()) {
    tokens = tokens.first(tokens.size() - 1);
  }
  return tokenizer_.decode(tokens);
}

Result<std::vector<int32_t>> Conversation::spoken(const std::string& content) const {
  auto tokens = TRY(tokenizer_.encode(content, model::AddSpecial::kNo));
  tokens.push_back(end_token_);
  return tokens;
}

}  // namespace tandem::rollout
