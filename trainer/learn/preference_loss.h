// Losses of pairs of answers to one prompt, of which one is preferred. Pure functions.
//
// With s the sum of an answer's logprobs, r the same under the reference, n its trained tokens, beta a scale, eps the
// share of pairs taken to be the wrong way round, and h = (s - r of the preferred) - (s - r of the other):
//
//   sigmoid  -(1 - eps) ln sigma(beta h) - eps ln sigma(-beta h)   DPO, Rafailov 2023 (arXiv 2305.18290); eps: cDPO,
//                                                                  Mitchell 2023
//   hinge    max(0, 1 - beta h)                                    SLiC-HF, Zhao 2023 (arXiv 2305.10425)
//   ipo      (h' - 1 / (2 beta))^2, h' of means, s / n and r / n   IPO, Azar 2023 (arXiv 2310.12036), means as in TRL
//
// To each is added sft * (-s / n) of the preferred answer (RPO, Pang 2024, arXiv 2404.19733). Batches have the mean.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tandem::trainer {

struct PreferenceLoss {
  enum class Kind : uint8_t { kSigmoid, kIpo, kHinge };
  Kind kind = Kind::kSigmoid;
  double beta = 0.1;           // above 0
  double label_smoothing = 0;  // eps, in [0, 0.5); of sigmoid alone
  double sft = 0;
};

Result<PreferenceLoss::Kind> preference_kind(std::string_view name);

struct PairLosses {
  double loss = 0;
  std::vector<double> gradients;  // of the loss by each sum, [answers]
  // Means over pairs. A reward is beta (s - r), of ipo beta times the difference of means.
  double accuracy = 0;  // pairs whose preferred answer has the higher reward; equal ones count half
  double margin = 0, chosen_reward = 0, rejected_reward = 0;
};

// Answers 2 i and 2 i + 1 are a pair, the preferred one first. `tokens`: n of each, above 0. All have one length.
PairLosses preference_loss(std::span<const double> sums, std::span<const double> reference,
                           std::span<const double> tokens, const PreferenceLoss& loss);

}  // namespace tandem::trainer
