// Between messages and tokens, without ever making tokens of text that the model has said.
//
// A conversation is tokens from the start: the prompt is rendered once, what the model samples is kept as it is, and
// what comes after it (its end of turn, the next message, the opening of its next turn) is rendered apart and appended.
//
// Thread safety: const methods from any thread.
#pragma once

#include <string>
#include <vector>

#include "model/chat_template.h"
#include "model/config.h"
#include "model/tokenizer.h"

namespace tandem::rollout {

struct ChatMessage {
  std::string role, content;
};

class Conversation {
 public:
  // kInvalid where the template does not end an assistant's message with one of the model's end tokens.
  static Result<Conversation> load(const fs::path& model_directory);

  // The opening messages and the start of the model's first turn.
  Result<std::vector<int32_t>> prompt(const std::vector<ChatMessage>& messages) const;
  // What lies between the end token of the model's turn and its next turn, when `message` is said between.
  Result<std::vector<int32_t>> next_turn(const ChatMessage& message) const;
  // What the model said in a turn, without the end token.
  std::string text_of(std::span<const int32_t> tokens) const;
  // A turn that says `content`: as demonstrations have it.
  Result<std::vector<int32_t>> spoken(const std::string& content) const;

  const std::vector<int32_t>& end_tokens() const { return config_.eos_tokens; }
  const model::Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  Conversation(model::ModelConfig config, model::Tokenizer tokenizer, model::ChatTemplate chat_template)
      : config_(std::move(config)), tokenizer_(std::move(tokenizer)), template_(std::move(chat_template)) {}
  Result<std::string> render(const std::vector<ChatMessage>& messages, bool open_turn) const;

  model::ModelConfig config_;
  model::Tokenizer tokenizer_;
  model::ChatTemplate template_;
  std::string end_text_;  // of the end token that the template writes
  int32_t end_token_ = 0;
};

}  // namespace tandem::rollout
