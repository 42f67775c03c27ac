// The loss of one sequence of a batch and its derivative by every logprob, for every named algorithm; used by the
// trainer and by `tandem loss`.
//
// Formulas and their sources: docs/algorithms.md. Everything in double, sums from left to right. Pure functions.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "trainer/learn/algorithm.h"

namespace tandem::trainer {

// The tokens of a sequence that count, in order. All spans that are given have one length; others are empty.
struct CountedTokens {
  std::span<const double> logprobs;
  std::span<const double> old_logprobs;  // the policy before the step; empty: rollout_logprobs, or logprobs themselves
  std::span<const double> rollout_logprobs;  // of the sampler
  std::span<const double> ref_logprobs;      // of the reference model, where the algorithm has a KL term
  std::span<const double> advantages;
  std::span<const double> weights = {};  // of each token beside that of the sequence; empty: 1
  std::span<const uint8_t> chosen = {};  // by a loss that chooses among all tokens of the batch
};

// Sums over the tokens of any number of sequences.
struct LossCounts {
  double tokens = 0, clipped_low = 0, clipped_high = 0, masked = 0, dropped = 0;
  double ratio = 0, ratio_max = 0, mismatch = 0, weight = 0, kl = 0, entropy = 0;  // sums, but for the largest ratio
  void add(const LossCounts& other);
  // Means over tokens: ratio_mean, ratio_max, entropy, clip_fraction and what else the algorithm has.
  std::map<std::string, double> metrics(const Algorithm& algorithm, bool against_sampler) const;
};

// Sum of weight * loss over the tokens; `grad_logprobs` is written.
double sequence_loss(const CountedTokens& tokens, double weight, const Algorithm& algorithm,
                     std::span<double> grad_logprobs, LossCounts& counts);

// The base of ratios: the policy before the step; the sampler where that is not given, and for DPPO.
std::span<const double> ratio_base(const CountedTokens& tokens, const Algorithm& algorithm);
// The estimate of the distance from the reference model.
double kl_estimate(double logprob, double ref_logprob, const Kl& kl);

// The factor of each token's loss; `lengths` are sums of the weights of counted tokens of every sequence of the global
// batch.
std::vector<double> sequence_weights(std::span<const double> lengths, const Algorithm& algorithm);

}  // namespace tandem::trainer
