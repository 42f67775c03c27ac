// A loss: what an advantage and a ratio make of a token, with its derivative, its own keys and the names that choose
// it. Each is one file of this folder, and a line in table.cpp.
//
// Formulas and their sources: docs/algorithms.md. Pure functions in double, sums from left to right.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "trainer/learn/algorithm.h"
#include "trainer/learn/batch.h"

namespace tandem::trainer {

struct LossCounts;

// A token's loss, and its derivative by the token's logprob.
struct Term {
  double value = 0, gradient = 0;
};

// The tokens of a sequence that count.
struct PolicyTokens {
  std::span<const double> logprobs;
  std::span<const double> log_ratios;  // to what ratios are taken against; the mean for a loss with one a sequence
  std::span<const double> advantages;
  std::span<const uint8_t> chosen;  // by PolicyLoss::choose; empty without it
};

// A number of one loss alone: `algorithm.NAME` in configs.
struct LossKey {
  std::string_view name;  // with a section of the loss: "sapo.tau_positive"
  double preset = 0;
  std::string_view doc;
  double least = 0, most = 1e6;
};

struct LossName {
  std::string_view name;
  void (*set_defaults)(Algorithm& algorithm);
};

struct PolicyLoss {
  std::span<const LossName> names;
  std::span<const LossKey> keys = {};
  // Writes a term for each token, before corrections, KL and entropy.
  void (*terms)(const PolicyTokens& tokens, const Algorithm& algorithm, LossCounts& counts,
                std::span<Term> terms) = nullptr;
  // Which tokens of the whole batch the loss treats in another way, [rows * length]; null: it looks at each sequence by
  // itself. `base` is what ratios are taken against.
  std::vector<uint8_t> (*choose)(const LossBatch& batch, const Rows& advantages, const Rows& base,
                                 const Algorithm& algorithm, int64_t step) = nullptr;
  bool one_ratio = false;        // of a sequence: the mean of its tokens' log ratios
  bool against_sampler = false;  // ratios are taken against the sampler, whatever else is given
  bool is_function = false;      // of the user's own (own_functions.h); `terms` is not called
  bool has_clip = true;          // reads clip_low and clip_high
  bool has_dual_clip = true;     // reads dual_clip
  bool has_mask = false;         // reads mask_low, mask_high and penalty
};

std::span<const PolicyLoss* const> policy_losses();

// The value of a key of the algorithm's own loss. An unknown name is a bug of the caller, and ends the process.
double own_number(const Algorithm& algorithm, std::string_view name);

// A log ratio held within +-20, and whether it lies beyond: the derivative is 0 there. NaN stays what it is.
double bounded(double log_ratio);
bool is_beyond_bound(double log_ratio);

// max(-A r, -A clip(r)) with its derivative by the log ratio; for A < 0 at most -A dual_clip.
Term clipped_term(double ratio, double advantage, const Algorithm& algorithm);
// Applies clipped_term() to each token.
void clip_terms(const PolicyTokens& tokens, const Algorithm& algorithm, LossCounts& counts, std::span<Term> terms);

}  // namespace tandem::trainer
