// Clip-Cov (Cui et al. 2025, "The Entropy Mechanism"): of the tokens whose covariance lies in a band, a few drawn at
// random learn nothing; the rest is PPO's clip.
#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "trainer/learn/losses/covariance.h"
#include "trainer/learn/losses/policy_loss.h"
#include "trainer/learn/sequence_loss.h"

namespace tandem::trainer {

namespace {

constexpr std::string_view kClipShare = "clip_cov.share", kClipLow = "clip_cov.low", kClipHigh = "clip_cov.high";

// The draw of a token depends on the step and on its place in the batch.
std::vector<uint8_t> choose_to_clip(const LossBatch& batch, const Rows& advantages, const Rows& base,
                                    const Algorithm& a, int64_t step) {
  const Rows covariance = covariances(batch, advantages);
  const double low = own_number(a, kClipLow), high = own_number(a, kClipHigh);
  std::vector<std::pair<double, size_t>> candidates;
  for (size_t i = 0; i < covariance.size(); ++i) {
    if (!batch.mask[i] || !(covariance[i] > low && covariance[i] < high)) continue;
    // What PPO clips is no candidate.
    const double ratio = std::exp(bounded(batch.logprobs[i] - base[i])), advantage = advantages[i];
    if (-advantage * std::clamp(ratio, 1 - a.clip_low, 1 + a.clip_high) > -advantage * ratio) continue;
    candidates.emplace_back(uniform_at(static_cast<uint64_t>(step), i), i);
  }
  std::ranges::sort(candidates);
  candidates.resize(std::min(candidates.size(), share_of_tokens(batch, own_number(a, kClipShare))));
  std::vector<uint8_t> chosen(covariance.size(), 0);
  for (const auto& [draw, i] : candidates) chosen[i] = 1;
  return chosen;
}

void clip_cov_terms(const PolicyTokens& tokens, const Algorithm& a, LossCounts& counts, std::span<Term> terms) {
  clip_terms(tokens, a, counts, terms);
  for (size_t i = 0; i < terms.size(); ++i) {
    if (!tokens.chosen[i]) continue;
    terms[i] = {};
    ++counts.masked;
  }
}

constexpr LossKey kClipCovKeys[] = {{kClipShare, 2e-4, "Of clip_cov, share of the tokens that learn nothing", 0, 1},
                                    {kClipLow, 1, "Of clip_cov, covariance above which tokens are drawn", 0, 1e6},
                                    {kClipHigh, 5, "Of clip_cov, covariance below which tokens are drawn", 0, 1e6}};
constexpr LossName kClipCovNames[] = {{"clip_cov", [](Algorithm& a) { a.advantage = AdvantageKind::kGrpo; }}};

}  // namespace

extern const PolicyLoss kClipCovLoss;
constinit const PolicyLoss kClipCovLoss{
    .names = kClipCovNames, .keys = kClipCovKeys, .terms = clip_cov_terms, .choose = choose_to_clip};

}  // namespace tandem::trainer
