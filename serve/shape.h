// How an endpoint's answers look: whole, or as server-sent events while they grow.
//
// Pure; thread safety: none, one owner.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "serve/choice.h"

namespace tandem::serve {

struct Usage {
  int prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0, reasoning_tokens = 0;
  int accepted_prediction_tokens = 0, rejected_prediction_tokens = 0;
};
Usage usage_of(std::span<const std::vector<int32_t>> prompts, std::span<const Choice> choices);
Json json_of(const Usage& usage);  // as OpenAI's chat has it

struct AnswerView {
  std::span<const std::vector<int32_t>> prompts;
  std::span<const Choice> choices;  // those of the first prompt before those of the second
  int n = 1;
  Usage usage() const { return usage_of(prompts, choices); }
};

// The text of server-sent events.
class EventWriter {
 public:
  void add(const Json& data) { text_ += "data: " + dump_json(data) + "\n\n"; }
  void add(std::string_view type, const Json& data) {
    text_ += "event: " + std::string(type) + "\ndata: " + dump_json(data) + "\n\n";
  }
  void end() { text_ += "data: [DONE]\n\n"; }
  std::string take() { return std::exchange(text_, {}); }

 private:
  std::string text_;
};

class Shape {
 public:
  virtual ~Shape() = default;
  virtual Json whole(const AnswerView& view) const = 0;
  virtual void begin(const AnswerView& view, EventWriter& out) = 0;
  // More of choice number `index`.
  virtual void piece(const AnswerView& view, size_t index, const Piece& piece, EventWriter& out) = 0;
  virtual void end(const AnswerView& view, EventWriter& out) = 0;
  // The answer is whole; of what a later request may go on from, it keeps what that needs.
  virtual void ended(const AnswerView& view) { (void)view; }
  // In the middle of a stream.
  virtual void error(const Json& body, EventWriter& out);
};

// A token as text: bytes that are no UTF-8 alone become U+FFFD.
std::string token_text(const model::Tokenizer* tokenizer, int32_t token);
// Ids of `count` tokens from `first` on.
Json ids_of(const Choice& choice, size_t first, size_t count);
// As JSON: minus infinity is -9999, as OpenAI has it.
Json json_of_logprob(float logprob);
// vLLM's prompt_logprobs: null, then by token id {logprob, rank, decoded_token}.
Json prompt_logprobs_of(const model::Tokenizer* tokenizer, std::span<const int32_t> prompt, const Choice& choice);

}  // namespace tandem::serve
