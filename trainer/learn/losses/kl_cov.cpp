// KL-Cov (Cui et al. 2025, "The Entropy Mechanism"): -A r without a clip; the tokens of the largest covariance are held
// back by |log r|.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "trainer/learn/losses/covariance.h"
#include "trainer/learn/losses/policy_loss.h"
#include "trainer/learn/sequence_loss.h"

namespace tandem::trainer {
namespace {

constexpr std::string_view kKlShare = "kl_cov.share", kKlCoefficient = "kl_cov.coefficient";

std::vector<uint8_t> choose_to_hold(const LossBatch& batch, const Rows& advantages, const Rows&, const Algorithm& a,
                                    int64_t) {
  const Rows covariance = covariances(batch, advantages);
  std::vector<size_t> places;
  for (size_t i = 0; i < covariance.size(); ++i) {
    if (batch.mask[i]) places.push_back(i);
  }
  std::ranges::stable_sort(places, [&](size_t x, size_t y) { return covariance[x] > covariance[y]; });
  places.resize(std::min(places.size(), share_of_tokens(batch, own_number(a, kKlShare))));
  std::vector<uint8_t> chosen(covariance.size(), 0);
  for (const size_t place : places) chosen[place] = 1;
  return chosen;
}

void kl_cov_terms(const PolicyTokens& tokens, const Algorithm& a, LossCounts& counts, std::span<Term> terms) {
  const double coefficient = own_number(a, kKlCoefficient);
  for (size_t i = 0; i < terms.size(); ++i) {
    const double log_ratio = tokens.log_ratios[i];
    const double gain = tokens.advantages[i] * std::exp(bounded(log_ratio));
    terms[i] = {-gain, is_beyond_bound(log_ratio) ? 0 : -gain};
    if (!tokens.chosen[i]) continue;
    terms[i].value += coefficient * std::abs(log_ratio);
    terms[i].gradient += coefficient * static_cast<double>((log_ratio > 0) - (log_ratio < 0));
    ++counts.masked;
  }
}

constexpr LossKey kKlCovKeys[] = {{kKlShare, 2e-4, "Of kl_cov, share of the tokens that are held back", 0, 1},
                                  {kKlCoefficient, 1, "Of kl_cov, of |log r| of those tokens", 0, 1e6}};
constexpr LossName kKlCovNames[] = {{"kl_cov", [](Algorithm& a) { a.advantage = AdvantageKind::kGrpo; }}};

}  // namespace

extern const PolicyLoss kKlCovLoss;
constinit const PolicyLoss kKlCovLoss{.names = kKlCovNames,
                                      .keys = kKlCovKeys,
                                      .terms = kl_cov_terms,
                                      .choose = choose_to_hold,
                                      .has_clip = false,
                                      .has_dual_clip = false};

}  // namespace tandem::trainer
