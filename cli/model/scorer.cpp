#include "cli/model/scorer.h"

#include <algorithm>
#include <numeric>

namespace tandem::cli {

namespace {

std::vector<kernels::TokenPick> next_tokens(std::span<const int32_t> tokens) {
  std::vector<kernels::TokenPick> picks;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) picks.push_back({static_cast<int32_t>(i), tokens[i + 1]});
  return picks;
}

}  // namespace

Scorer::Scorer(model::Weights weights, kernels::Stream stream)
    : weights_(std::move(weights)),
      stream_(std::move(stream)),
      forward_(weights_.config(), weights_.config().max_positions, weights_.format()),
      tape_(weights_.config(), weights_.config().max_positions, weights_.format()) {}

Result<std::unique_ptr<Scorer>> Scorer::create(model::Weights weights, int threads) {
  auto stream = TRY(kernels::Stream::cpu(threads));
  TRY(weights.pack(stream));
  return std::unique_ptr<Scorer>(new Scorer(std::move(weights), std::move(stream)));
}

Result<Scores> Scorer::by_engine(std::span<const int32_t> tokens) {
  constexpr size_t kChunk = 512;
  const int count = static_cast<int>((tokens.size() + kernels::kPageTokens - 1) / kernels::kPageTokens);
  auto pool = TRY(model::KvPool::create(weights_.config(), count, weights_.format()));
  std::vector<int> pages(count);
  std::iota(pages.begin(), pages.end(), 0);
  Scores scores;
  for (size_t first = 0; first < tokens.size(); first += kChunk) {
    const auto chunk = tokens.subspan(first, std::min(kChunk, tokens.size() - first));
    model::ForwardBatch batch;
    batch.add(chunk, static_cast<int>(first), pages);
    TRY(forward_.run(stream_, weights_, pool, batch));
    const auto picks = next_tokens(tokens.subspan(first, std::min(kChunk + 1, tokens.size() - first)));
    std::vector<float> logprobs(picks.size()), log_sum(chunk.size());
    std::vector<int32_t> argmax(chunk.size());
    std::vector<int> rows(chunk.size());
    std::iota(rows.begin(), rows.end(), 0);
    TRY(forward_.head(stream_, weights_, {.rows = rows, .log_sum = log_sum.data(), .argmax = argmax.data()}, picks,
                      logprobs));
    scores.logprobs.insert(scores.logprobs.end(), logprobs.begin(), logprobs.end());
    scores.argmax.insert(scores.argmax.end(), argmax.begin(), argmax.end());
  }
  return scores;
}

Result<Scores> Scorer::by_trainer(std::span<const int32_t> tokens) {
  const auto tree = trainer::merge(std::span(&tokens, 1));
  Scores scores;
  scores.logprobs = TRY(tape_.forward(stream_, weights_, tree, next_tokens(tokens)));
  std::vector<int> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  scores.argmax = TRY(tape_.argmax(rows));
  return scores;
}

}  // namespace tandem::cli
