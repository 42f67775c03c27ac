// What is maximised: advantages of groups, and the loss of a token with its derivative.
//
// Names and meanings are those of the `algorithm` section of a config (docs/config.md). Pure functions in double.
// Sources: PPO (Schulman et al. 2017), GRPO (Shao et al. 2024), Dr.GRPO (Liu et al. 2025), DAPO (Yu et al. 2025),
// RLOO (Ahmadian et al. 2024); truncated importance weights and masks as in verl and IcePop.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "rollout/advantage.h"

namespace tandem::trainer {

enum class Aggregation : uint8_t { kTokenMean, kSeqMeanTokenMean, kSeqMeanTokenSum, kSumOverLength };

struct Algorithm {
  std::string name = "dr_grpo";
  rollout::AdvantageKind advantage = rollout::AdvantageKind::kDrGrpo;
  double std_epsilon = 1e-6;
  double clip_low = 0.2, clip_high = 0.2;  // distances of the ratio from 1
  double dual_clip = 0;                    // 0: off; else bounds the loss of a negative advantage
  Aggregation aggregation = Aggregation::kTokenMean;
  double aggregation_length = 0;  // for kSumOverLength
  friend bool operator==(const Algorithm&, const Algorithm&) = default;
};

// The defaults of a name: grpo, dr_grpo, dapo, rloo. kInvalid suggests the nearest.
Result<Algorithm> algorithm_named(std::string_view name);
// `name` and any override; unknown keys are errors.
Result<Algorithm> algorithm_from_json(const Json& json);
Json to_json(const Algorithm& algorithm);

struct TokenLoss {
  double loss = 0;
  double slope = 0;  // dloss / dlogprob
  double ratio = 1;
  bool clipped = false;
};
// max(-A r, -A clip(r, 1 - low, 1 + high)) with r = e^(logprob - old_logprob), the exponent held within +-20; for A < 0
// at most -A dual_clip.
TokenLoss token_loss(double logprob, double old_logprob, double advantage, const Algorithm& algorithm);

// What each token's loss is multiplied with: `lengths` are the counted tokens of every sequence of the global batch.
std::vector<double> sequence_weights(std::span<const int> lengths, const Algorithm& algorithm);

}  // namespace tandem::trainer
