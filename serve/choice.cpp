#include "serve/choice.h"

#include <fmt/format.h>

#include "rollout/engine/no_numbers.h"

namespace tandem::serve {

std::string_view name_of(Finish finish) {
  switch (finish) {
    case Finish::kStop:
      return "stop";
    case Finish::kLength:
      return "length";
    case Finish::kToolCalls:
      return "tool_calls";
  }
  return "";
}

Choice::Choice(const model::Tokenizer* tokenizer, std::shared_ptr<const ChoiceSettings> settings, std::string id_prefix)
    : tokenizer_(tokenizer),
      settings_(std::move(settings)),
      id_prefix_(std::move(id_prefix)),
      stops_(settings_->stops) {
  if (tokenizer_ != nullptr) decoder_.emplace(*tokenizer_);
  if (settings_->format) message_.emplace(*settings_->format, settings_->tools);
  if (settings_->most_tokens == 0) finish_ = Finish::kLength;
}

void Choice::take_prompt(rollout::SampledToken&& token) {
  prompt_ = std::move(token.prompt);
  cached_ = token.cached_tokens;
}

Result<Piece> Choice::take(rollout::SampledToken token) {
  if (tokens_.empty()) take_prompt(std::move(token));
  if (settings_->routes) routes_.insert(routes_.end(), token.routes.begin(), token.routes.end());
  token.routes = {};
  if (token.turn_ended && token.end == rollout::TurnEnd::kConstraint) {
    return fail(Status::exhausted("the constraint can be followed no further: too many readings of anyOf, or no token "
                                  "of the model goes on")
                    .hint("let the branches of anyOf differ early"));
  }
  TRY(rollout::check_are_numbers(std::span(&token.logprob, 1)));
  Piece piece{.first_token = tokens_.size(), .tokens = 1};
  const bool stopped = token.turn_ended && token.end == rollout::TurnEnd::kStop;
  const bool cut = token.turn_ended && !stopped;
  const int32_t id = token.token;
  accepted_ += token.predicted;
  tokens_.push_back(std::move(token));
  if (message_ && message_->in_reasoning()) ++reasoning_tokens_;
  std::string said;
  if (tokenizer_ != nullptr) {
    const bool hidden = stopped ? !settings_->include_stop : is_hidden(id);
    if (!hidden) said = decoder_->push(id);
    if (stopped || cut) said += decoder_->finish();
  }
  std::string certain = stops_.push(said);
  const bool by_text = !stops_.found().empty();
  if (by_text && settings_->include_stop) certain += stops_.found();
  bool last = by_text || stopped || cut;
  if (last && !by_text) certain += stops_.finish();
  if (by_text)
    stop_reason_ = stops_.found();
  else if (stopped)
    stop_reason_ = id;
  add_text(certain, last, piece);
  last = last || (settings_->one_call && ended_calls_ > 0);
  if (last) {
    const bool whole_calls = !calls_.empty() && ended_calls_ == calls_.size();
    finish_ = cut && !by_text ? Finish::kLength : whole_calls ? Finish::kToolCalls : Finish::kStop;
    piece.finish = finish_;
  }
  return piece;
}

// Marks of a message may be special tokens.
bool Choice::is_hidden(int32_t token) const {
  if (!settings_->skip_special || !tokenizer_->is_special(token)) return false;
  if (!message_) return true;
  return !message_->reads_calls() && !model::is_reasoning_mark(tokenizer_->name_of(token));
}

void Choice::add_text(std::string_view text, bool last, Piece& piece) {
  if (!message_) {
    piece.text = text;
  } else {
    auto parts = message_->push(text);
    piece.reasoning = std::move(parts.reasoning);
    add_events(parts.events, piece);
    if (last) {
      parts = message_->finish();
      piece.reasoning += parts.reasoning;
      add_events(parts.events, piece);
    }
  }
  reasoning_ += piece.reasoning;
  text_ += piece.text;
}

void Choice::add_events(const std::vector<model::ToolEvent>& events, Piece& piece) {
  using Event = model::ToolEvent;
  const auto place_of = [&](size_t number) {
    while (call_of_.size() <= number) call_of_.push_back(SIZE_MAX);
    return &call_of_[number];
  };
  for (const Event& event : events) {
    size_t* const place = event.kind == Event::kText ? nullptr : place_of(event.number);
    switch (event.kind) {
      case Event::kText:
        piece.text += event.text;
        break;
      case Event::kCallBegun:
        *place = calls_.size();
        calls_.push_back({calls_.size(), fmt::format("{}{}", id_prefix_, calls_.size()), event.text, ""});
        piece.calls.push_back(calls_.back());
        break;
      case Event::kArguments:
        if (*place == SIZE_MAX) break;
        calls_[*place].arguments += event.text;
        piece.calls.push_back({*place, "", "", event.text});
        break;
      case Event::kCallEnded:
        ended_calls_ += *place != SIZE_MAX;
        break;
      case Event::kError:  // what cannot be read as a call is text
        if (*place == SIZE_MAX) piece.text += event.text;
        break;
    }
  }
}

}  // namespace tandem::serve
