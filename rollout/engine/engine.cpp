#include "rollout/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "kernels/attention.h"
#include "kernels/lm_head.h"

namespace tandem::rollout {

namespace {
double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
}  // namespace

Engine::Engine(std::shared_ptr<const model::Weights> weights, uint64_t version, kernels::Stream stream,
               EngineSettings settings, model::KvPool pool)
    : weights_(std::move(weights)),
      version_(version),
      stream_(std::move(stream)),
      settings_(settings),
      cache_(std::move(pool)),
      forward_(weights_->config(), settings.max_tokens, weights_->format()) {}

Result<Engine> Engine::create(std::shared_ptr<const model::Weights> weights, uint64_t version, kernels::Stream stream,
                              const EngineSettings& wanted) {
  EngineSettings settings = wanted;
  if (settings.slots < 1 || settings.slots > 4096) {
    return fail(Status::invalid(fmt::format("engine: {} slots, expected 1 to 4096", settings.slots)));
  }
  if (settings.max_tokens < 2 || settings.max_tokens > weights->config().max_positions) {
    return fail(Status::invalid(fmt::format("engine: max_tokens is {}, expected 2 to the model's {}",
                                            settings.max_tokens, weights->config().max_positions)));
  }
  const int of_one = (settings.max_tokens + kernels::kPageTokens - 1) / kernels::kPageTokens;
  if (settings.pages == 0) settings.pages = settings.slots * of_one * 3 / 2;
  if (settings.pages < of_one) {
    return fail(Status::invalid(fmt::format("engine: {} pages do not hold one sequence of {} tokens, which takes {}",
                                            settings.pages, settings.max_tokens, of_one)));
  }
  auto pool = TRY(model::KvPool::create(weights->config(), settings.pages, weights->format()));
  return Engine(std::move(weights), version, std::move(stream), settings, std::move(pool));
}

Status Engine::check_tokens(std::span<const int32_t> tokens) const {
  const int vocabulary = weights_->config().vocabulary;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocabulary) {
      return Status::invalid(fmt::format("token {} at {} is outside the vocabulary of {}", tokens[i], i, vocabulary));
    }
  }
  return {};
}

Status Engine::check_turn(const TurnRequest& turn) const {
  TRY(kernels::check(turn.sampling));
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
  sequence.in_turn = true;
  sequence.matcher.reset();
  if (turn.constraint) {
    sequence.matcher =
        std::make_unique<model::constraint::Matcher>(turn.constraint->grammar, turn.constraint->vocabulary);
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
  sequence.tokens = std::move(prompt);
  begin_turn(sequence, turn);
  sequences_.emplace(id, std::move(sequence));
  waiting_.push_back(id);
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
  waiting_.push_back(id);
  return {};
}

void Engine::release(SequenceId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  cache_.release(found->second.pages);
  sequences_.erase(found);
  std::erase(waiting_, id);
}

int Engine::running() const {
  return static_cast<int>(
      std::count_if(sequences_.begin(), sequences_.end(), [](const auto& s) { return s.second.in_turn; }));
}

int Engine::free_slots() const { return std::max(0, settings_.slots - running()); }

Status Engine::swap_weights(std::shared_ptr<const model::Weights> weights, uint64_t version) {
  if (!(weights->config() == weights_->config())) return Status::invalid("the new weights are of another model");
  if (weights->format() != weights_->format()) return Status::invalid("the new weights are in another number format");
  weights_ = std::move(weights);
  version_ = version;
  for (auto& [id, sequence] : sequences_) {
    cache_.release(sequence.pages);
    counters_.recomputed_tokens += sequence.computed;
    sequence.computed = 0;
  }
  return {};
}

void Engine::admit() {
  const auto holds_slot = [](const auto& s) { return s.second.admitted; };
  auto taken = std::count_if(sequences_.begin(), sequences_.end(), holds_slot);
  size_t next = 0;
  for (; next < waiting_.size() && taken < settings_.slots; ++next, ++taken)
    sequences_.at(waiting_[next]).admitted = true;
  waiting_.erase(waiting_.begin(), waiting_.begin() + next);
}

// Makes room for `tokens` positions of `sequence`, taking pages of parked sequences, the longest unused first.
bool Engine::make_room(Sequence& sequence, int tokens) {
  while (!cache_.grow(sequence.pages, tokens)) {
    Sequence* victim = nullptr;
    for (auto& [id, other] : sequences_) {
      if (other.admitted || other.pages.empty() || &other == &sequence) continue;
      if (victim == nullptr || other.touched < victim->touched) victim = &other;
    }
    if (victim == nullptr) return false;
    cache_.release(victim->pages);
    victim->computed = 0;
  }
  return true;
}

// Takes over the longest prefix that another sequence has computed. False where waiting a step would give a longer one,
// because a sequence scheduled in this step is computing it now.
bool Engine::adopt_prefix(SequenceId id, Sequence& sequence, std::span<const Chunk> scheduled) {
  const Sequence* donor = nullptr;
  int longest = 0;
  for (const auto& [other_id, other] : sequences_) {
    if (other_id == id || other.computed <= longest) continue;
    const size_t limit =
        std::min({sequence.tokens.size() - 1, other.tokens.size(), static_cast<size_t>(other.computed)});
    const auto same =
        std::mismatch(sequence.tokens.begin(), sequence.tokens.begin() + limit, other.tokens.begin()).first -
        sequence.tokens.begin();
    if (same > longest) {
      longest = static_cast<int>(same);
      donor = &other;
    }
  }
  for (const Chunk& chunk : scheduled) {
    const Sequence& other = *chunk.sequence;
    const size_t limit = std::min(sequence.tokens.size() - 1, static_cast<size_t>(other.computed + chunk.rows));
    const auto same = std::mismatch(sequence.tokens.begin(), sequence.tokens.begin() + limit, other.tokens.begin(),
                                    other.tokens.begin() + std::min(limit, other.tokens.size()))
                          .first -
                      sequence.tokens.begin();
    if (same > longest + kernels::kPageTokens / 2) return false;
  }
  if (donor != nullptr && cache_.share(donor->pages, longest, sequence.pages)) {
    sequence.computed = longest;
    counters_.shared_tokens += longest;
  }
  return true;
}

std::vector<Engine::Chunk> Engine::schedule() {
  std::vector<Chunk> chunks;
  int prefill_left = settings_.prefill_tokens;
  for (auto& [id, sequence] : sequences_) {
    if (!sequence.admitted) continue;
    if (sequence.computed == 0 && sequence.pages.empty() && !adopt_prefix(id, sequence, chunks)) continue;
    const int missing = static_cast<int>(sequence.tokens.size()) - sequence.computed;
    const int rows = missing == 1 ? 1 : std::min(missing, prefill_left);
    if (rows == 0) continue;
    if (!make_room(sequence, sequence.computed + rows)) continue;
    if (missing > 1) prefill_left -= rows;
    sequence.touched = counters_.steps;
    chunks.push_back({id, &sequence, rows, rows == missing});
  }
  if (!chunks.empty() || waiting_.size() == sequences_.size()) return chunks;
  // Every admitted sequence waits for pages of the others: the youngest gives its up and computes them again later.
  Sequence* youngest = nullptr;
  for (auto& [id, sequence] : sequences_) {
    if (sequence.admitted && !sequence.pages.empty()) youngest = &sequence;
  }
  if (youngest != nullptr) {
    cache_.release(youngest->pages);
    youngest->computed = 0;
  }
  return chunks;
}

Result<std::vector<SampledToken>> Engine::step() {
  admit();
  std::vector<Chunk> chunks;
  for (int attempt = 0; chunks.empty() && attempt <= settings_.slots; ++attempt) {
    if (std::none_of(sequences_.begin(), sequences_.end(), [](const auto& s) { return s.second.admitted; }))
      return std::vector<SampledToken>{};
    chunks = schedule();
  }
  if (chunks.empty()) return fail(Status::internal("no sequence can run, though the cache holds the longest alone"));
  const auto start = std::chrono::steady_clock::now();
  model::ForwardBatch batch;
  for (const Chunk& chunk : chunks) {
    const Sequence& s = *chunk.sequence;
    batch.add(std::span(s.tokens).subspan(s.computed, chunk.rows), s.computed, s.pages);
  }
  TRY(forward_.run(stream_, *weights_, cache_.pool(), batch));
  counters_.forward_seconds += seconds_since(start);
  ++counters_.steps;
  for (const Chunk& chunk : chunks) {
    chunk.sequence->computed += chunk.rows;
    if (chunk.rows > 1) counters_.prompt_tokens += chunk.rows;
  }
  return sample(chunks);
}

Result<kernels::Sampled> Engine::sample_constrained(Sequence& sequence, std::span<const float> logits,
                                                    float log_sum) const {
  auto& matcher = *sequence.matcher;
  const size_t words = matcher.vocabulary().mask_words();
  std::vector<uint64_t> allowed(std::max(words, logits.size() / 64 + 1), 0);
  matcher.mask(std::span(allowed).first(words));
  const auto& stops = sequence.turn.stop_tokens;
  if (matcher.complete()) {
    for (const int32_t token : stops)
      if (token >= 0 && static_cast<size_t>(token) < logits.size()) allowed[token / 64] |= uint64_t{1} << (token % 64);
  }
  // Tokens of the tokenizer that the model does not have cannot be drawn.
  allowed.resize(logits.size() / 64 + 1);
  allowed.back() &= (uint64_t{1} << (logits.size() % 64)) - 1;
  if (std::all_of(allowed.begin(), allowed.end(), [](uint64_t word) { return word == 0; }))
    return fail(Status::exhausted("no token of the model goes on with the text"));
  const auto drawn = kernels::sample_allowed(logits, allowed, log_sum, sequence.turn.sampling, sequence.turn.seed,
                                             sequence.tokens.size());
  if (std::find(stops.begin(), stops.end(), drawn.token) == stops.end()) TRY(matcher.accept(drawn.token));
  return drawn;
}

Result<std::vector<SampledToken>> Engine::sample(std::span<const Chunk> chunks) {
  const auto start = std::chrono::steady_clock::now();
  const int vocabulary = weights_->config().vocabulary;
  const size_t padded = kernels::padded_vocabulary(vocabulary);
  std::vector<const Chunk*> sampling;
  std::vector<int> rows;
  int row = 0;
  for (const Chunk& chunk : chunks) {
    row += chunk.rows;
    if (!chunk.samples) continue;
    sampling.push_back(&chunk);
    rows.push_back(row - 1);
  }
  std::vector<SampledToken> sampled;
  if (sampling.empty()) return sampled;
  std::vector<float> log_sum(sampling.size());
  const size_t panels = padded / kernels::kPanelColumns;
  logits_.resize(std::max(logits_.size(), sampling.size() * padded));
  panel_sums_.resize(sampling.size() * panels);
  TRY(forward_.head(
      stream_, *weights_,
      {.rows = rows, .logits = logits_.data(), .log_sum = log_sum.data(), .panel_sums = panel_sums_.data()}, {}, {}));
  sampled.resize(sampling.size());
  std::vector<uint8_t> stuck(sampling.size(), 0);
  stream_.threads().run(static_cast<int>(sampling.size()), [&](int i) {
    Sequence& s = *sampling[i]->sequence;
    const auto logits = std::span(logits_).subspan(i * padded, vocabulary);
    kernels::Sampled drawn;
    if (s.matcher) {
      const auto constrained = sample_constrained(s, logits, log_sum[i]);
      stuck[i] = constrained ? 0 : 1;
      if (constrained) drawn = *constrained;
    } else {
      drawn = kernels::sample(logits, std::span(panel_sums_).subspan(i * panels, panels), log_sum[i], s.turn.sampling,
                              s.turn.seed, s.tokens.size());
    }
    sampled[i] = {.sequence = sampling[i]->id,
                  .token = drawn.token,
                  .logprob = drawn.logprob,
                  .sampling_logprob = drawn.sampling_logprob,
                  .version = version_};
  });
  for (size_t i = 0; i < sampling.size(); ++i) {
    Sequence& s = *sampling[i]->sequence;
    SampledToken& token = sampled[i];
    if (stuck[i] != 0) {
      token = {.sequence = token.sequence, .token = -1, .version = version_, .turn_ended = true};
      token.end = TurnEnd::kConstraint;
      s.in_turn = s.admitted = false;
      continue;
    }
    s.tokens.push_back(token.token);
    const int said = static_cast<int>(s.tokens.size()) - s.turn_start;
    const auto& stops = s.turn.stop_tokens;
    const bool stopped = std::find(stops.begin(), stops.end(), token.token) != stops.end();
    if (stopped || said >= s.turn.max_new_tokens || static_cast<int>(s.tokens.size()) >= settings_.max_tokens) {
      token.turn_ended = true;
      token.end = stopped ? TurnEnd::kStop : said >= s.turn.max_new_tokens ? TurnEnd::kLength : TurnEnd::kContext;
      s.in_turn = s.admitted = false;
    }
  }
  counters_.sampled_tokens += sampled.size();
  counters_.sample_seconds += seconds_since(start);
  return sampled;
}

}  // namespace tandem::rollout
