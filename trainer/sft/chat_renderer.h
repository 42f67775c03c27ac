// Chats into tokens to learn from: the model's own template writes the text, and what the assistant said in it is
// trained, its end token included.
//
// Where the template has {% generation %} blocks they say what the assistant said. Elsewhere the chat is rendered up to
// each of its turns: what stands there with the opening of a turn must be the beginning of the whole, in text and in
// tokens, and so must what stands there with the turn; where that does not hold the turn cannot be told, which is an
// error. What the template writes after the end token is not trained: nobody says it.
//
// Thread safety: const methods from any thread.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "model/chat_template.h"
#include "model/config.h"
#include "trainer/learn/learner.h"
#include "trainer/sft/transcript.h"

namespace tandem::trainer {

// Who renders tool calls: the template, or we, into the messages, in the format of the workspace tasks
// (rollout/agent/text_calls.h), for templates that know none.
enum class CallWriting : uint8_t { kTemplate, kText };

struct RenderingSettings {
  CallWriting calls = CallWriting::kTemplate;
  std::optional<std::tm> now;  // for templates that ask for the date
};

// A run of tokens that are all trained or all not.
struct TokenRun {
  std::string text;
  bool trained = false;
};

class ChatRenderer {
 public:
  static Result<ChatRenderer> load(const fs::path& model_directory, const RenderingSettings& settings);

  // kInvalid says which message is the trouble.
  Result<Sample> sample(const Chat& chat) const;

  // What a reward model reads: the conversation up to its last message of the assistant, with the end token of that as
  // its last token and as the one that is trained. Where the template ends a message with none, the last token of all.
  // The text of a special token within a message is text. kInvalid where the template passes over calls or tools.
  Result<Sample> answered(const Chat& chat) const;

  // The sample as text, for people.
  std::vector<TokenRun> runs_of(const Sample& sample) const;
  // Whether the last token that is trained is one that ends the model's turn: else it does not learn to end.
  bool ends_its_turn(const Sample& sample) const;

  // False where the model's chat template would have to write tools and calls, and does not.
  bool writes_calls() const;

  const model::ModelConfig& config() const { return config_; }

 private:
  struct Turn;   // of the assistant, in the text of the whole
  struct Whole;  // text and tokens of a chat
  ChatRenderer(model::ModelConfig config, model::Tokenizer tokenizer, model::ChatTemplate chat_template,
               const RenderingSettings& settings)
      : config_(std::move(config)),
        tokenizer_(std::move(tokenizer)),
        template_(std::move(chat_template)),
        settings_(settings) {}
  bool has_generation_blocks(bool with_tools) const;
  bool is_end(int32_t token) const;
  Result<model::Rendered> render(const Chat& chat, size_t messages, bool open_turn) const;
  Result<Sample> sample_of(const Chat& chat) const;
  Result<Sample> answer_of(const Chat& chat) const;
  // `make` of the chat as the settings have calls written, and where it fails of the notations that templates of some
  // models want.
  Result<Sample> in_notation(const Chat& chat, Result<Sample> (ChatRenderer::*make)(const Chat&) const) const;
  Status mark_blocks(const Chat& chat, const Whole& whole, Sample& sample) const;
  Status mark_turns(const Chat& chat, const Whole& whole, Sample& sample) const;
  Result<Turn> find_turn(const Chat& chat, size_t message, size_t before, const Whole& whole) const;

  model::ModelConfig config_;
  model::Tokenizer tokenizer_;
  model::ChatTemplate template_;
  RenderingSettings settings_;
};

}  // namespace tandem::trainer
