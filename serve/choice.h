// One answer of a request as it grows: from sampled tokens to text, reasoning, tool calls and logprobs.
//
// Pure: what `take` returns follows from the settings and the tokens. Text that may still turn out to be part of a stop
// text, a tag or an unfinished character is held back.
//
// Thread safety: none; one owner. The tokenizer outlives it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/message_format.h"
#include "model/tokenizer.h"
#include "rollout/engine/engine.h"
#include "serve/stop_texts.h"

namespace tandem::serve {

struct ChoiceSettings {
  std::vector<std::string> stops;
  bool include_stop = false;                   // the stop text, or the text of a stop token, is part of the answer
  bool skip_special = true;                    // special tokens are no part of the text
  std::optional<model::MessageFormat> format;  // of a chat: the answer is a message; else all of it is text
  Json tools = Json::array();                  // that are offered in a chat; empty: nothing is a call
  bool one_call = false;                       // the answer ends with its first call
  int most_tokens = 0;                         // 0: an empty answer
  int predicted_tokens = 0;                    // of the request's prediction
  bool routes = false;                         // the experts of prompt and answer are wanted
};

enum class Finish : uint8_t { kStop, kLength, kToolCalls };
std::string_view name_of(Finish finish);

// A call that begins, or more of its arguments.
struct CallPiece {
  size_t index = 0;       // among the calls of the answer
  std::string id, name;   // where it begins
  std::string arguments;  // JSON, to be put together
};

struct Piece {
  std::string text, reasoning;
  std::vector<CallPiece> calls;
  size_t first_token = 0, tokens = 0;  // of Choice::tokens(), that came with it
  std::optional<Finish> finish;        // with the last
  bool empty() const { return text.empty() && reasoning.empty() && calls.empty() && tokens == 0 && !finish; }
};

class Choice {
 public:
  // `id_prefix` begins the ids of calls; the tokenizer is null where the model has none: no text then.
  Choice(const model::Tokenizer* tokenizer, std::shared_ptr<const ChoiceSettings> settings, std::string id_prefix);

  // Not after the end. kExhausted where a constraint could not be followed.
  Result<Piece> take(rollout::SampledToken token);

  // The first token of an answer of none, whose prompt alone is wanted.
  void take_prompt(rollout::SampledToken&& token);

  bool ended() const { return finish_.has_value(); }
  Finish finish() const { return *finish_; }
  // The cause of the end: the stop text, or a token id; null otherwise.
  const Json& stop_reason() const { return stop_reason_; }
  const std::vector<rollout::SampledToken>& tokens() const { return tokens_; }
  const std::vector<rollout::PromptLogprob>& prompt() const { return prompt_; }
  // Where they are wanted: a row (base/expert_routes.h) for each token of prompt and answer but the last.
  const std::vector<uint8_t>& routes() const { return routes_; }
  int cached_tokens() const { return cached_; }
  int reasoning_tokens() const { return reasoning_tokens_; }
  // Tokens of the prediction that the answer has said, and those that it has not by its end.
  int accepted_prediction() const { return accepted_; }
  int rejected_prediction() const { return ended() ? settings_->predicted_tokens - accepted_ : 0; }
  const std::string& text() const { return text_; }
  const std::string& reasoning() const { return reasoning_; }
  // Whole ones, and those that were cut: their arguments are what came of them.
  const std::vector<CallPiece>& calls() const { return calls_; }

 private:
  bool is_hidden(int32_t token) const;
  void add_text(std::string_view text, bool last, Piece& piece);
  void add_events(const std::vector<model::ToolEvent>& events, Piece& piece);

  const model::Tokenizer* tokenizer_;
  std::shared_ptr<const ChoiceSettings> settings_;
  std::string id_prefix_;
  std::optional<model::StreamDecoder> decoder_;
  StopTexts stops_;
  std::optional<model::MessageStream> message_;
  std::vector<rollout::SampledToken> tokens_;
  std::vector<rollout::PromptLogprob> prompt_;
  std::vector<uint8_t> routes_;
  int cached_ = 0, reasoning_tokens_ = 0, accepted_ = 0;
  std::string text_, reasoning_;
  std::vector<CallPiece> calls_;
  std::vector<size_t> call_of_;  // by number in the text, place in calls_
  size_t ended_calls_ = 0;
  std::optional<Finish> finish_;
  Json stop_reason_;
};

}  // namespace tandem::serve
