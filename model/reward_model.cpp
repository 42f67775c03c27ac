#include "model/reward_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "kernels/attention.h"

namespace tandem::model {

Result<RewardModel> RewardModel::create(std::shared_ptr<const Weights> weights, kernels::Stream stream,
                                        RewardHead head) {
  const auto width = static_cast<size_t>(weights->config().width);
  if (head.weight.size() != width + 1) {
    return fail(Status::invalid(
        fmt::format("a reward head of width {} for a model of width {}", head.weight.size() - 1, width)));
  }
  return RewardModel(std::move(weights), std::move(stream), std::move(head));
}

Result<double> RewardModel::reward(std::span<const int32_t> tokens) {
  constexpr size_t kChunk = 512;
  if (tokens.empty()) return fail(Status::invalid("there is no token to give a reward for"));
  if (tokens.size() > static_cast<size_t>(config().max_positions)) {
    return fail(Status::invalid(
        fmt::format("{} tokens, and the model takes {} at most", tokens.size(), config().max_positions)));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= config().vocabulary)
      return fail(
          Status::invalid(fmt::format("token {} is {}, expected 0 to {}", i, tokens[i], config().vocabulary - 1)));
  }
  const int count = static_cast<int>((tokens.size() + kernels::kPageTokens - 1) / kernels::kPageTokens);
  if (pool_.pages() < count) {
    pool_ = KvPool();  // before the next one is made: both need not fit
    pool_ = TRY(KvPool::create(config(), count, weights_->format()));
  }
  std::vector<int> pages(static_cast<size_t>(count));
  std::iota(pages.begin(), pages.end(), 0);
  for (const int page : pages) pool_.clear(page);
  int last = 0;
  for (size_t first = 0; first < tokens.size(); first += kChunk) {
    const auto chunk = tokens.subspan(first, std::min(kChunk, tokens.size() - first));
    Batch batch;
    batch.add(chunk, static_cast<int>(first), pages);
    TRY(forward_.run(stream_, *weights_, pool_, batch));
    last = static_cast<int>(chunk.size()) - 1;
  }
  const double reward = head_.reward(forward_.states(std::array{last}));
  if (std::isfinite(reward)) return reward;
  return fail(Status::corrupt(fmt::format("the reward is {}", reward))
                  .hint("look for NaN in the weights with tandem inspect --numbers"));
}

}  // namespace tandem::model
