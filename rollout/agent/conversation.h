// Converts between messages and tokens in the model's own format: one implementation for training, demonstrations, the
// agent and evaluations.
//
// A conversation is tokens from the start. The prompt is rendered once, with the tools, by the model's chat template;
// what the model samples is kept as it is and never made into tokens again; what comes after it (the results of its
// calls, the opening of its next turn) is rendered and appended. Calls are read by the dialect that the template
// writes. A template that knows no tools has them in the system message, and calls as text
// (rollout/agent/text_calls.h).
//
// Thread safety: const methods from any thread.
#pragma once

#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/chat_template.h"
#include "model/config.h"
#include "model/message_format.h"
#include "model/tokenizer.h"
#include "rollout/agent/chat_messages.h"

namespace tandem::rollout {

struct NextTurn {
  std::vector<int32_t> tokens;  // between the end token of the last turn and the next one
  // The template would write the last turn with other tokens than were sampled, which stand nevertheless.
  bool is_retokenised = false;
};

struct ConversationSettings {
  std::optional<std::tm> now;  // for templates that write the date
  // What becomes of the text of special tokens within a message, a file, a result: text, so that nothing forges a turn.
  model::SpecialInContent special_in_content = model::SpecialInContent::kText;
};

class Conversation {
 public:
  // kInvalid, with what to do, where the template does not end an
  // assistant's message with an end token of the model, asks for a date and has none, or writes calls in a way that no
  // dialect reads.
  static Result<Conversation> load(const fs::path& model_directory, const ConversationSettings& settings = {});

  envs::ToolListing listing() const { return notation_.listing; }
  const model::MessageFormat& format() const { return format_; }

  // The opening messages with the tools, and the start of the model's first turn.
  Result<std::vector<int32_t>> prompt(const envs::Opening& opening) const;
  // `turn`: what was sampled, with or without its end token. `tools`: OpenAI's array, as the opening has it.
  // At most envs::kMostCalls calls, the last an error where there were more.
  Said read(std::span<const int32_t> turn, const Json& tools) const;
  Result<NextTurn> next_turn(std::span<const int32_t> turn, const Said& said, const Reply& reply,
                             const Json& tools) const;
  // A turn with these calls, or with this answer, and its end token: as the template writes it, for demonstrations.
  // `calls_before`: of the conversation, which some families count.
  Result<std::vector<int32_t>> spoken(std::span<const envs::Call> calls, const std::string& answer, const Json& tools,
                                      size_t calls_before = 0) const;

  // The text of a turn, without the end token.
  std::string text_of(std::span<const int32_t> tokens) const;
  const std::vector<int32_t>& end_tokens() const { return config_.eos_tokens; }
  const model::Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  Conversation(model::ModelConfig config, model::Tokenizer tokenizer, model::ChatTemplate chat_template,
               const ConversationSettings& settings)
      : config_(std::move(config)),
        tokenizer_(std::move(tokenizer)),
        template_(std::move(chat_template)),
        settings_(settings),
        special_texts_(tokenizer_.special_texts()) {}

  Status find_end();
  Status find_notation();
  // A template's output, with the byte ranges [begin, end) that are plain text and never special tokens.
  struct Written {
    std::string text;
    std::vector<std::pair<size_t, size_t>> plain;
    Written from(size_t begin) const;
  };
  Result<Written> write(const Json& messages, const Json& tools, bool open_turn) const;
  Result<std::vector<int32_t>> tokens_of(const Written& written) const;
  std::vector<int32_t> without_end(std::span<const int32_t> turn) const;
  // Behind the end of a message of the model that ends `text`.
  size_t end_of_turn(std::string_view text) const;
  // The template's text between the end of the turn and the next turn, independent of the turn's own text.
  Result<Written> text_between(const Json& turn, const Json& reply, const Json& tools) const;

  model::ModelConfig config_;
  model::Tokenizer tokenizer_;
  model::ChatTemplate template_;
  ConversationSettings settings_;
  std::vector<std::string> special_texts_;
  model::MessageFormat format_;
  CallNotation notation_;
  // The end token that the template writes behind a turn; empty where the beginning of the next message is it.
  std::string end_text_;
  int32_t end_token_ = 0;
};

}  // namespace tandem::rollout
