#include "rollout/engine/draft_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/attention.h"
#include "model/config.h"
#include "model/same_tokenizer.h"
#include "model/weights.h"

namespace tandem::rollout {

Result<std::shared_ptr<const model::Weights>> load_draft_weights(const fs::path& directory, const fs::path& model,
                                                                 const model::Place& place) {
  const auto theirs = TRY(model::read_config(directory)), ours = TRY(model::read_config(model));
  constexpr const char* kTokenizer = "tokenizer.json";
  // Models of ids alone, which have no text to compare.
  const bool are_bare = !fs::exists(directory / kTokenizer) && !fs::exists(model / kTokenizer);
  if (!are_bare) TRY(model::check_same_tokenizer(directory, model, "draft model"));
  if (are_bare && theirs.vocabulary != ours.vocabulary) {
    return fail(Status::invalid(fmt::format("the draft model {} has {} tokens, and the model {} has {}",
                                            directory.string(), theirs.vocabulary, model.string(), ours.vocabulary)));
  }
  auto weights = std::make_shared<model::Weights>(TRY(model::load_weights(directory, false)));
  TRY(place.ready(*weights));
  return weights;
}

Result<std::shared_ptr<DraftModel>> DraftModel::create(const std::shared_ptr<const model::Weights>& weights,
                                                       const model::Place& place, const EngineSettings& beside) {
  const EngineSettings settings{.slots = beside.slots,
                                .max_tokens = std::min(beside.max_tokens, weights->config().max_positions)};
  return std::make_shared<DraftModel>(TRY(Engine::create(weights, 0, place, settings)));
}

// The engine's sequence begins a turn behind the tokens that are wanted.
bool DraftModel::follow(const Wanted& wanted) {
  std::vector<int32_t>& held = held_[wanted.id];
  const TurnRequest turn{.max_new_tokens = wanted.most,
                         .sampling = wanted.turn->sampling,
                         .logit_scale = wanted.turn->logit_scale,
                         .seed = wanted.turn->seed,
                         .stop_tokens = wanted.turn->stop_tokens,
                         .priority = wanted.turn->priority,
                         .cache_salt = wanted.turn->cache_salt};
  const auto same = std::ranges::mismatch(held, wanted.tokens).in1 - held.begin();
  Status status = Status::not_found("no sequence of it yet");
  if (engine_.knows(wanted.id)) {
    status = engine_.rewind(wanted.id, static_cast<int>(same));
    if (status) status = engine_.extend(wanted.id, wanted.tokens.subspan(static_cast<size_t>(same)), turn);
  }
  if (!status) {
    engine_.release(wanted.id);
    status = engine_.add(wanted.id, {wanted.tokens.begin(), wanted.tokens.end()}, turn);
  }
  if (!status) {
    forget(wanted.id);
    return false;
  }
  held.assign(wanted.tokens.begin(), wanted.tokens.end());
  return true;
}

Result<std::vector<std::vector<int32_t>>> DraftModel::propose(std::span<const Wanted> wanted) {
  std::vector<std::vector<int32_t>> proposed(wanted.size());
  std::map<SequenceId, size_t> places;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (follow(wanted[i])) places[wanted[i].id] = i;
  }
  const EngineCounters before = engine_.counters();
  size_t tokens = 0;
  while (!engine_.idle()) {
    for (const SampledToken& token : TRY(engine_.step())) {
      if (token.token < 0) continue;
      proposed[places.at(token.sequence)].push_back(token.token);
      held_.at(token.sequence).push_back(token.token);
      ++tokens;
    }
  }
  // The first call about a sequence reads its prompt, which says nothing of what the next ones cost.
  const EngineCounters after = engine_.counters();
  const uint64_t read = after.prompt_tokens - before.prompt_tokens;
  if (tokens > 0 && read <= static_cast<uint64_t>(kernels::kPageTokens) * wanted.size()) {
    const double seconds =
        after.forward_seconds + after.sample_seconds - before.forward_seconds - before.sample_seconds;
    const double one = seconds / static_cast<double>(tokens);
    constexpr double kWeight = 0.2;
    seconds_of_token_ = seconds_of_token_ == 0
                            ? one
                            : seconds_of_token_ + kWeight * (std::min(one, 2 * seconds_of_token_) - seconds_of_token_);
  }
  return proposed;
}

void DraftModel::forget(SequenceId id) {
  engine_.release(id);
  held_.erase(id);
}

}  // namespace tandem::rollout
