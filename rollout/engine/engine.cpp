#include "rollout/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/attention.h"
#include "model/live_adapter.h"
#include "model/routes.h"
#include "model/weights.h"
#include "rollout/engine/draft_model.h"

namespace tandem::rollout {

namespace {
int pages_for(int tokens) { return (tokens + kernels::kPageTokens - 1) / kernels::kPageTokens; }

// A salt of the prefix tree: no salt of a caller is that of an adapter, or of another salt with one.
std::string tree_salt(const TurnRequest& turn) {
  if (turn.adapter) return "adapter " + turn.adapter->digest().hex() + turn.cache_salt;
  return turn.cache_salt.empty() ? std::string() : "salt " + turn.cache_salt;
}
}  // namespace

int pages_of(const EngineSettings& settings) {
  return settings.pages > 0 ? settings.pages : settings.slots * pages_for(settings.max_tokens) * 3 / 2;
}

Engine::Engine(std::unique_ptr<model::Executor> executor, int vocabulary, uint64_t version, EngineSettings settings)
    : executor_(std::move(executor)),
      vocabulary_(vocabulary),
      version_(version),
      settings_(settings),
      cache_(*executor_) {
  if (settings_.record_routes) route_pages_.emplace(model::route_shape(executor_->config()), executor_->pages());
}

Result<Engine> Engine::create(const model::ModelConfig& config, uint64_t version, const MakeExecutor& make,
                              const EngineSettings& wanted) {
  EngineSettings settings = wanted;
  if (settings.slots < 1 || settings.slots > 4096) {
    return fail(Status::invalid(fmt::format("engine: {} slots, expected 1 to 4096", settings.slots)));
  }
  if (settings.max_tokens < 2 || settings.max_tokens > config.max_positions) {
    return fail(Status::invalid(fmt::format("engine: max_tokens is {}, expected 2 to the model's {}",
                                            settings.max_tokens, config.max_positions)));
  }
  if (settings.record_routes && !model::route_shape(config).any())
    return fail(Status::invalid("engine: routes are recorded of a mixture of experts alone, and the model has none"));
  const int of_one = pages_for(settings.max_tokens);
  settings.pages = pages_of(settings);
  if (settings.pages < of_one) {
    return fail(Status::invalid(fmt::format("engine: {} pages do not hold one sequence of {} tokens, which takes {}",
                                            settings.pages, settings.max_tokens, of_one)));
  }
  auto executor = TRY(make({.pages = settings.pages, .max_positions = settings.max_tokens}));
  return Engine(std::move(executor), config.vocabulary, version, settings);
}

Result<Engine> Engine::create(std::shared_ptr<const model::Weights> weights, uint64_t version, kernels::Stream stream,
                              const EngineSettings& settings) {
  const auto make = [&](const model::ExecutorSettings& room) {
    return model::make_cpu_executor(weights, std::move(stream), room);
  };
  return create(weights->config(), version, make, settings);
}

Result<Engine> Engine::create(const std::shared_ptr<const model::Weights>& weights, uint64_t version,
                              const model::Place& place, const EngineSettings& settings) {
  const auto make = [&](const model::ExecutorSettings& room) { return model::make_executor(weights, place, room); };
  return create(weights->config(), version, make, settings);
}

Status Engine::check_tokens(std::span<const int32_t> tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocabulary_) {
      return Status::invalid(fmt::format("token {} at {} is outside the vocabulary of {}", tokens[i], i, vocabulary_));
    }
  }
  return {};
}

Status Engine::check_turn(const TurnRequest& turn) const {
  TRY(kernels::check(turn.sampling));
  if (!(turn.logit_scale >= 0.01f && turn.logit_scale <= 100.0f))
    return Status::invalid(fmt::format("a logit scale of {}, expected 0.01 to 100", turn.logit_scale));
  if (turn.logit_scale != 1 && (turn.top_logprobs > 0 || turn.prompt_logprobs))
    return Status::invalid("logprobs of other tokens are of the model alone, and the turn scales its logits");
  for (const auto& [token, add] : turn.bias) {
    if (token < 0 || token >= vocabulary_ || !std::isfinite(add))
      return Status::invalid(fmt::format("a bias of {} for token {} of a vocabulary of {}", add, token, vocabulary_));
  }
  if (!std::isfinite(turn.frequency_penalty) || !std::isfinite(turn.presence_penalty))
    return Status::invalid("a penalty is not a number");
  TRY(check_tokens(turn.prediction));
  if (turn.record_kept &&
      (turn.constraint || !turn.bias.empty() || turn.min_new_tokens > 0 || turn.frequency_penalty != 0 ||
       turn.presence_penalty != 0 || turn.top_logprobs > 0 || turn.prompt_logprobs || turn.sampling.temperature != 1))
    return Status::invalid("kept tokens are recorded at a sampling temperature of 1, of what sampling alone cuts off");
  if (!turn.constraint) return {};
  if (turn.stop_tokens.empty()) return Status::invalid("a constraint needs an end token, and the turn has none");
  for (const int32_t token : turn.stop_tokens) {
    if (turn.constraint->vocabulary->bytes_of(token).empty()) continue;
    return Status::invalid(
        fmt::format("token {} ends the turn and stands for text, so a constraint cannot tell which is meant", token));
  }
  return {};
}

void Engine::begin_turn(Sequence& sequence, const TurnRequest& turn) {
  sequence.turn_start = static_cast<int>(sequence.tokens.size());
  sequence.turn = turn;
  sequence.turn.adapter.reset();  // the sequence has its own
  sequence.turn_number = ++turns_;
  sequence.in_turn = true;
  ++running_;
  sequence.matcher.reset();
  sequence.prompt.clear();
  sequence.said.clear();
  sequence.cached = sequence.computed;
  sequence.drafts.begin_turn(std::move(sequence.turn.prediction));
  sequence.record = record_;
  sequence.balance = {};
  if (turn.prompt_logprobs) {
    forget_pages(sequence);
    sequence.cached = 0;
  }
  if (turn.constraint) {
    sequence.matcher =
        std::make_shared<model::constraint::Matcher>(turn.constraint->grammar, turn.constraint->vocabulary);
  }
}

Status Engine::add(SequenceId id, std::vector<int32_t> prompt, const TurnRequest& turn) {
  if (prompt.empty()) return Status::invalid("the prompt is empty");
  if (static_cast<int>(prompt.size()) >= settings_.max_tokens) {
    return Status::invalid(fmt::format("a prompt of {} tokens leaves no room in sequences of at most {}", prompt.size(),
                                       settings_.max_tokens));
  }
  if (sequences_.contains(id)) return Status::invalid(fmt::format("sequence {} exists already", id));
  TRY(check_tokens(prompt));
  TRY(check_turn(turn));
  Sequence sequence;
  if (turn.adapter) sequence.adapter_id = TRY(hold(turn.adapter));
  sequence.adapter = turn.adapter;
  sequence.tokens = std::move(prompt);
  sequence.salt = tree_salt(turn);
  begin_turn(sequence, turn);
  sequence.first_turn = sequence.turn_number;
  waiting_.insert(place_of(id, sequence));
  sequences_.emplace(id, std::move(sequence));
  return {};
}

Status Engine::extend(SequenceId id, std::span<const int32_t> tokens, const TurnRequest& turn) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || found->second.in_turn) {
    return Status::not_found(fmt::format("no parked sequence {}", id));
  }
  Sequence& sequence = found->second;
  if (static_cast<int>(sequence.tokens.size() + tokens.size()) >= settings_.max_tokens) {
    return Status::exhausted(
        fmt::format("{} more tokens leave no room in sequences of at most {}", tokens.size(), settings_.max_tokens));
  }
  TRY(check_tokens(tokens));
  TRY(check_turn(turn));
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
  begin_turn(sequence, turn);
  waiting_.insert(place_of(id, sequence));
  return {};
}

Status Engine::rewind(SequenceId id, int length) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || found->second.in_turn)
    return Status::not_found(fmt::format("no parked sequence {}", id));
  Sequence& s = found->second;
  if (length < s.turn_start || length > static_cast<int>(s.tokens.size())) {
    return Status::invalid(
        fmt::format("place {} is not of the last turn, tokens {} to {}", length, s.turn_start, s.tokens.size()));
  }
  s.tokens.resize(static_cast<size_t>(length));
  // The row of the last token is computed with what comes next, even where no other token comes with it.
  s.computed = std::min(s.computed, length - 1);
  if (s.routes_told > length) {
    s.routes_told = length;
    s.routes.clear();
  }
  // Whole pages may be others', too: what comes now must not be written to them.
  if (const int whole = (length - 1) / kernels::kPageTokens; whole < s.remembered) {
    cache_.shrink(s.pages, static_cast<size_t>(whole));
    s.remembered = whole;
    s.computed = std::min(s.computed, whole * kernels::kPageTokens);
  }
  return {};
}

void Engine::release(SequenceId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  if (draft_model_) draft_model_->forget(id);
  cache_.release(found->second.pages);
  if (found->second.in_turn) {
    --running_;
    leave_queue(id, found->second);
  }
  let_go_of_adapter(found->second);
  sequences_.erase(found);
}

Result<model::AdapterId> Engine::hold(const std::shared_ptr<const model::LiveAdapter>& adapter) {
  auto held = adapters_.find(adapter);
  if (held == adapters_.end())
    held = adapters_.emplace(adapter, HeldAdapter{.id = TRY(executor_->attach(adapter))}).first;
  ++held->second.sequences;
  return held->second.id;
}

// Plans that were submitted with it are ahead of this in the executor's order.
void Engine::let_go_of_adapter(const Sequence& sequence) {
  const auto held = adapters_.find(sequence.adapter);
  if (held == adapters_.end() || --held->second.sequences > 0) return;
  (void)executor_->detach(held->second.id);  // fails for ids alone that it has not given
  adapters_.erase(held);
}

int Engine::free_slots() const { return std::max(0, settings_.slots - running()); }

// What is known of the first `computed` tokens.
void Engine::remember(Sequence& sequence, int computed, bool tail) {
  // Others would find keys and values that their weights have not made.
  if (sequence.behind || sequence.mixed) return;
  const int known = std::min(computed, static_cast<int>(sequence.tokens.size()));
  if (!tail && known / kernels::kPageTokens == sequence.remembered) return;
  cache_.remember(std::span(sequence.tokens).first(known), sequence.pages, tail, counters_.steps, sequence.salt);
  sequence.remembered = known / kernels::kPageTokens;
}

int Engine::missing(Sequence& sequence) {
  if (sequence.verifies) return 0;
  const int length = sequence.length();
  if (sequence.later.empty()) return length - sequence.computed;
  // The mask and the penalties of the next token, and whether there is one, follow from the last.
  const bool last = length - sequence.turn_start >= sequence.turn.max_new_tokens || length >= settings_.max_tokens;
  const bool follows = sequence.matcher || sequence.turn.frequency_penalty != 0 || sequence.turn.presence_penalty != 0;
  return follows || last || may_draft_soon(sequence) ? 0 : length - sequence.computed;
}

Result<std::vector<Engine::Chunk>> Engine::schedule() {
  std::vector<Chunk> chunks;
  const bool behind = next_is_behind();
  const bool others_sample = std::ranges::any_of(admitted_, [](const auto& admitted) {
    return static_cast<int>(admitted.second->tokens.size()) > admitted.second->turn_start;
  });
  int prefill_left =
      others_sample ? std::min(settings_.prefill_beside, settings_.prefill_tokens) : settings_.prefill_tokens;
  DraftLoad load = load_before_drafts(behind);
  if (draft_model_) TRY(ask_draft_model(behind, load));
  const auto order = in_order();
  for (const auto& [id, admitted] : order) {
    Sequence& sequence = *admitted;
    if (sequence.behind != behind || missing(sequence) == 0) continue;
    if (sequence.computed == 0) sequence.context_version = version_of(sequence);
    if (sequence.computed == 0 && sequence.pages.empty() && !sequence.turn.prompt_logprobs && !behind) {
      // One token at least is computed: what comes next is sampled from it.
      const auto known = std::span(sequence.tokens).first(sequence.tokens.size() - 1);
      int copied = -1;
      const auto adopted = TRY(cache_.adopt(known, counters_.steps, sequence.pages, sequence.salt, copied));
      if (!adopted) continue;  // a sequence of this step is computing it
      sequence.computed = *adopted;
      counters_.shared_tokens += *adopted;
      if (route_pages_) find_routes(id, sequence, *adopted, copied);
      if (sequence.length() == sequence.turn_start) sequence.cached = *adopted;
    }
    const int lacking = missing(sequence);
    const int rows = lacking == 1 ? 1 : std::min(lacking, prefill_left);
    if (rows == 0) continue;
    if (!TRY(make_room(sequence, sequence.computed + rows))) continue;
    Draft draft = lacking == 1 ? draft_of(sequence, load) : Draft{};
    const int drafted = static_cast<int>(draft.tokens.size());
    // Nobody gives up pages for a guess.
    if (drafted > 0 && !TRY(cache_.grow(sequence.pages, sequence.computed + 1 + drafted))) draft = {};
    if (lacking > 1) prefill_left -= rows;
    sequence.touched = counters_.steps;
    remember(sequence, sequence.computed + rows, lacking > 1);
    const int all_rows = rows + static_cast<int>(draft.tokens.size());
    chunks.push_back({id, &sequence, all_rows, rows == lacking, std::move(draft), load});
    load.rows += all_rows - rows;
    load.drafted += all_rows - rows;
  }
  if (!chunks.empty() || !passes_.empty()) return chunks;
  // Every admitted sequence waits for pages of the others: the youngest gives its up and computes them again later.
  Sequence* youngest = nullptr;
  for (const auto& [id, sequence] : order) {
    if (!sequence->pages.empty()) youngest = sequence;
  }
  if (youngest != nullptr) forget_pages(*youngest);
  return chunks;
}

Result<std::vector<SampledToken>> Engine::step() {
  if (asleep_) return std::vector<SampledToken>();
  admit();
  const bool busy = !admitted_.empty();
  std::vector<Chunk> chunks;
  for (int attempt = 0; busy && chunks.empty() && attempt <= settings_.slots; ++attempt) {
    chunks = TRY(schedule());
    if (!passes_.empty()) break;
  }
  if (!chunks.empty()) {
    // Rows of one adapter side by side: they go into one product.
    std::ranges::stable_sort(chunks, {}, [](const Chunk& chunk) { return chunk.sequence->adapter_id; });
    TRY(submit(chunks));
  } else if (passes_.empty()) {
    if (!busy) return std::vector<SampledToken>{};
    return fail(Status::internal("no sequence can run, though the cache holds the longest alone"));
  }
  if (!chunks.empty() && static_cast<int>(passes_.size()) < executor_->depth()) return std::vector<SampledToken>{};
  return collect();
}

}  // namespace tandem::rollout
