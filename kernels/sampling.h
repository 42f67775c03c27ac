// Samples a token from logits: a pure function of (distribution, seed, position).
//
// One uniform number per position by Philox (base/random.h) picks from the cumulative distribution over token ids in
// ascending order, after temperature, then top-k, top-p and min-p in this order. Temperature 0 takes the largest logit,
// ties to the lowest id. Pure functions over one row; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/lm_head.h"

namespace tandem::kernels {

struct SamplingSettings {
  float temperature = 1;  // >= 0
  int top_k = 0;          // 0: all
  float top_p = 1;        // (0, 1]
  float min_p = 0;        // [0, 1): relative to the likeliest
  bool cuts() const { return top_k > 0 || top_p < 1 || min_p > 0; }
  bool plain() const { return temperature == 1 && !cuts(); }
};
// Tokens that a draw whose kept tokens are recorded (sample_kept) keeps at most: as with top_k, where that is not less.
inline constexpr int kMostKept = 4096;

struct Sampled {
  int32_t token = 0;
  float logprob = 0;           // of the model itself: temperature 1, nothing cut off
  float sampling_logprob = 0;  // of the distribution that was drawn from
};

// Logits with a NaN or an infinity among them are no distribution: the first token that may be drawn is returned, with
// logprobs of NaN.

// `log_sum` is the row's logsumexp from lm_head, `panels` its panel_sums: where nothing is cut off and temperature is 0
// or 1, a token is found by its panel, without a look at the whole vocabulary.
Sampled sample(std::span<const float> logits, std::span<const RunningSum> panels, float log_sum,
               const SamplingSettings& settings, uint64_t seed, uint64_t position);

// The same above temperature 0, and `kept` gets the tokens that it was drawn from, ascending: kMostKept of the
// likeliest at most where the settings cut something off, and none where all stay.
Sampled sample_kept(std::span<const float> logits, std::span<const RunningSum> panels, float log_sum,
                    const SamplingSettings& settings, uint64_t seed, uint64_t position, std::vector<int32_t>& kept);

// The same among the allowed tokens alone, a bit each from the lowest of word 0 on: they are the distribution, before
// temperature and all that follows. `logprob` stays that of the model itself, `sampling_logprob` is that of what was
// drawn from. At least one token must be allowed.
Sampled sample_allowed(std::span<const float> logits, std::span<const uint64_t> allowed, float log_sum,
                       const SamplingSettings& settings, uint64_t seed, uint64_t position);

// kInvalid names the setting that is out of range.
Status check(const SamplingSettings& settings);

}  // namespace tandem::kernels
