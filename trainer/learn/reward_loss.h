// The loss of a reward model over pairs of answers, of which one is preferred. Pure functions.
//
// With r the rewards of a pair's chosen and rejected answer, m the margin of the pair and c a coefficient:
//
//   -ln sigma(r_chosen - r_rejected - m) + c (r_chosen + r_rejected)^2
//
// Bradley-Terry, as in Ouyang 2022 (arXiv 2203.02155); margins as in Llama 2 (Touvron 2023, arXiv 2307.09288); the
// second term centres rewards about 0 (Eisenstein 2023, arXiv 2312.09244). Batches have the mean, as TRL's
// RewardTrainer has it.
#pragma once

#include <span>
#include <vector>

namespace tandem::trainer {

struct RewardLoss {
  double center = 0;  // c
  bool trunk = true;  // the model learns beside its head
};

struct RewardLosses {
  double loss = 0;
  std::vector<double> gradients;  // of the loss by each reward
  // Means over pairs; equal rewards count half, as margins do not count here.
  double accuracy = 0;
  double margin = 0, chosen_reward = 0, rejected_reward = 0;
  double mean_reward() const { return (chosen_reward + rejected_reward) / 2; }
};

// Rewards 2 i and 2 i + 1 are those of pair i, of its chosen answer first; `margins` has one number a pair.
RewardLosses reward_loss(std::span<const double> rewards, std::span<const double> margins, const RewardLoss& loss);

}  // namespace tandem::trainer
