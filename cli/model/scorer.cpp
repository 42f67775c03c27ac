#include "cli/model/scorer.h"

#include <algorithm>
#include <numeric>

#include "kernels/attention.h"

namespace tandem::cli {

namespace {

std::vector<kernels::TokenPick> next_tokens(std::span<const int32_t> tokens) {
  std::vector<kernels::TokenPick> picks;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) picks.push_back({static_cast<int32_t>(i), tokens[i + 1]});
  return picks;
}

}  // namespace

Scorer::Scorer(std::shared_ptr<const model::Weights> weights, kernels::Stream stream, model::Place place)
    : weights_(std::move(weights)), stream_(std::move(stream)), place_(std::move(place)) {}

Result<std::unique_ptr<Scorer>> Scorer::create(model::Weights weights, const model::Place& place) {
  auto stream = TRY(place.host_stream());
  TRY(place.ready(weights));
  auto shared = std::make_shared<const model::Weights>(std::move(weights));
  return std::unique_ptr<Scorer>(new Scorer(std::move(shared), std::move(stream), place));
}

Result<model::Executor*> Scorer::executor(int pages) {
  if (!executor_ || executor_->pages() < pages) {
    executor_.reset();
    executor_ = TRY(
        model::make_executor(weights_, place_, {.pages = pages, .max_positions = weights_->config().max_positions}));
  }
  std::vector<int> all(pages);
  std::iota(all.begin(), all.end(), 0);
  TRY(executor_->clear(all));
  return executor_.get();
}

Result<Scores> Scorer::by_engine(std::span<const int32_t> tokens) {
  constexpr size_t kChunk = 512;
  const int count = static_cast<int>((tokens.size() + kernels::kPageTokens - 1) / kernels::kPageTokens);
  model::Executor* const on = TRY(executor(count));
  std::vector<int> pages(count);
  std::iota(pages.begin(), pages.end(), 0);
  Scores scores;
  for (size_t first = 0; first < tokens.size(); first += kChunk) {
    const auto chunk = tokens.subspan(first, std::min(kChunk, tokens.size() - first));
    model::Plan plan;
    plan.batch.add(chunk, static_cast<int>(first), pages);
    plan.picks = next_tokens(tokens.subspan(first, std::min(kChunk + 1, tokens.size() - first)));
    plan.likeliest.resize(chunk.size());
    std::iota(plan.likeliest.begin(), plan.likeliest.end(), 0);
    const auto answer = TRY(on->collect(TRY(on->submit(std::move(plan)))));
    scores.logprobs.insert(scores.logprobs.end(), answer.picks.begin(), answer.picks.end());
    scores.argmax.insert(scores.argmax.end(), answer.likeliest.begin(), answer.likeliest.end());
  }
  return scores;
}

Result<Scores> Scorer::by_trainer(std::span<const int32_t> tokens) {
  if (!tape_) {
    const auto& config = weights_->config();
    if (place_.device.on_cpu())
      tape_ = std::make_unique<trainer::Tape>(config, config.max_positions, weights_->format());
    else
      tape_ = TRY(trainer::Tape::on_device(place_.device, *weights_, config.max_positions));
  }
  const auto tree = trainer::merge(std::span(&tokens, 1));
  Scores scores;
  scores.logprobs = TRY(tape_->forward(stream_, *weights_, tree, next_tokens(tokens)));
  std::vector<int> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  scores.argmax = TRY(tape_->argmax(rows));
  return scores;
}

}  // namespace tandem::cli
