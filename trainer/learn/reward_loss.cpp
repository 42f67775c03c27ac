#include "trainer/learn/reward_loss.h"

#include <algorithm>
#include <cmath>

namespace tandem::trainer {

RewardLosses reward_loss(std::span<const double> rewards, std::span<const double> margins, const RewardLoss& loss) {
  RewardLosses result;
  result.gradients.assign(rewards.size(), 0);
  const auto pairs = static_cast<double>(margins.size());
  for (size_t pair = 0; pair < margins.size(); ++pair) {
    const double chosen = rewards[2 * pair], rejected = rewards[2 * pair + 1];
    const double h = chosen - rejected - margins[pair], sum = chosen + rejected;
    // ln(1 + e^-h) and its derivative, without overflow.
    const double small = std::exp(-std::abs(h));
    result.loss += std::max(-h, 0.0) + std::log1p(small) + loss.center * sum * sum;
    const double by_h = h >= 0 ? -small / (1 + small) : -1 / (1 + small);
    result.gradients[2 * pair] = (by_h + 2 * loss.center * sum) / pairs;
    result.gradients[2 * pair + 1] = (-by_h + 2 * loss.center * sum) / pairs;
    result.accuracy += chosen > rejected ? 1 : chosen == rejected ? 0.5 : 0;
    result.chosen_reward += chosen;
    result.rejected_reward += rejected;
  }
  for (double* const sum : {&result.loss, &result.accuracy, &result.chosen_reward, &result.rejected_reward})
    *sum /= pairs;
  result.margin = result.chosen_reward - result.rejected_reward;
  return result;
}

}  // namespace tandem::trainer
