// Streams that one version of a model began and another goes on with.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "serve/continuation.h"
#include "serve/lane.h"

namespace tandem::serve {

bool Lane::hand_on(std::unique_ptr<Exchange>& exchange, std::string& message) {
  // Once; it outlives the call, which the exchange does not on this lane.
  const auto go_on = std::exchange(exchange->request.go_on, nullptr);
  if (!go_on) return false;
  const std::string id = exchange->request.id;
  const Status status = go_on(exchange);
  if (status.ok()) {
    ++streams_taken_over_;
    spdlog::warn("the served version of {} goes on with stream {}: {}", settings_.names.front(), id, message);
    return true;
  }
  ++streams_cut_;
  spdlog::warn("stream {} of {} ends with an error, and the served version does not go on with it: {}", id,
               settings_.names.front(), status.message());
  message += fmt::format("; the served version does not go on with the answer: {}", status.message());
  return false;
}

Status Lane::take_over(std::unique_ptr<Exchange>& stream, const std::shared_ptr<Lane>& from) {
  if (from.get() == this) return Status::unavailable("it is the version that has failed");
  if (!trouble_.ok()) return Status::unavailable("its engine has failed, too: " + trouble_.message());
  const Generation& generation = stream->request.prepared.generation;
  TRY(check_continuable(generation));
  if (text_.digest != from->text_.digest || config_.vocabulary != from->config_.vocabulary ||
      config_.eos_tokens != from->config_.eos_tokens)
    return Status::unfit("its tokenizer, chat template or end tokens are others");
  Offer offer{.priority = generation.priority, .key = stream->request.key};
  std::vector<AnswerId> answers;  // of this lane
  uint64_t said = 0;
  for (size_t i = 0; i < stream->choices.size(); ++i) {
    const auto& choice = stream->choices[i];
    said += choice.tokens().size();
    answers.push_back(++last_answer_);
    if (choice.ended()) continue;
    const size_t length = generation.prompts[i / generation.n].size() + choice.tokens().size();
    if (length >= static_cast<size_t>(max_tokens_))
      return Status::exhausted(fmt::format("it has room for {} tokens, prompt and answer together", max_tokens_));
    offer.answers.push_back(answers.back());
  }
  const auto actions = admission_.step(offer, clock_.now());
  if (actions.refused) {
    ++metrics_.refused_full;
    return Status::exhausted(fmt::format("{} answers wait for it already", admission_.waiting()));
  }
  from->say_spent(*stream, "elsewhere");
  ++metrics_.streams_taken_over;
  const uint64_t number = stream->request.number;
  Exchange& kept = *exchanges_.emplace(number, std::move(stream)).first->second;
  kept.begun_by = from;
  kept.taken_over_tokens = said;
  kept.request.elsewhere = nullptr;
  kept.answers = std::move(answers);
  kept.open = offer.answers.size();
  kept.started = false;
  kept.compute_seconds = 0;
  for (size_t i = 0; i < kept.choices.size(); ++i) {
    if (!kept.choices[i].ended()) places_.emplace(kept.answers[i], Place{number, i});
  }
  for (const auto& prompt : generation.prompts) metrics_.prompt_tokens += prompt.size();
  act(actions);
  return {};
}

}  // namespace tandem::serve
