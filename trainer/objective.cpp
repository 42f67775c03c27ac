#include "trainer/objective.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tandem::trainer {

TokenLoss token_loss(double logprob, double old_logprob, double advantage, const Algorithm& algorithm) {
  const double ratio = std::exp(std::clamp(logprob - old_logprob, -20.0, 20.0));
  const double bounded = std::clamp(ratio, 1 - algorithm.clip_low, 1 + algorithm.clip_high);
  const double free_loss = -advantage * ratio, clipped_loss = -advantage * bounded;
  const bool clipped = clipped_loss > free_loss;
  TokenLoss result{
      .loss = std::max(free_loss, clipped_loss), .slope = clipped ? 0 : free_loss, .ratio = ratio, .clipped = clipped};
  if (advantage < 0 && algorithm.dual_clip > 0 && result.loss > -advantage * algorithm.dual_clip) {
    return {.loss = -advantage * algorithm.dual_clip, .slope = 0, .ratio = ratio, .clipped = true};
  }
  return result;
}

std::vector<double> sequence_weights(std::span<const int> lengths, const Algorithm& algorithm) {
  const double tokens = std::accumulate(lengths.begin(), lengths.end(), 0.0);
  const auto sequences =
      static_cast<double>(std::count_if(lengths.begin(), lengths.end(), [](int n) { return n > 0; }));
  std::vector<double> weights(lengths.size(), 0);
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] == 0) continue;
    switch (algorithm.aggregation) {
      case Aggregation::kTokenMean:
        weights[i] = 1 / tokens;
        break;
      case Aggregation::kSeqMeanTokenMean:
        weights[i] = 1 / (sequences * lengths[i]);
        break;
      case Aggregation::kSeqMeanTokenSum:
        weights[i] = 1 / sequences;
        break;
      case Aggregation::kSumOverLength:
        weights[i] = 1 / (algorithm.aggregation_length * static_cast<double>(lengths.size()));
        break;
    }
  }
  return weights;
}

}  // namespace tandem::trainer
