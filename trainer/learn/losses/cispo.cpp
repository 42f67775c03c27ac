// CISPO (MiniMax 2025): -A clip(r) logprob, the clipped ratio held constant.
#include <algorithm>
#include <cmath>

#include "trainer/learn/losses/policy_loss.h"
#include "trainer/learn/sequence_loss.h"

namespace tandem::trainer {
namespace {

void cispo_terms(const PolicyTokens& tokens, const Algorithm& a, LossCounts& counts, std::span<Term> terms) {
  for (size_t i = 0; i < terms.size(); ++i) {
    const double ratio = std::exp(bounded(tokens.log_ratios[i]));
    counts.clipped_low += ratio < 1 - a.clip_low;
    counts.clipped_high += ratio > 1 + a.clip_high;
    const double weight = std::clamp(ratio, 1 - a.clip_low, 1 + a.clip_high) * tokens.advantages[i];
    terms[i] = {-weight * tokens.logprobs[i], -weight};
  }
}

constexpr LossName kCispoNames[] = {{"cispo", [](Algorithm& a) {
                                       a.advantage = AdvantageKind::kGrpo;
                                       a.clip_low = 1;  // a ratio is above 0: no lower clip, as in the paper
                                     }}};

}  // namespace

extern const PolicyLoss kCispoLoss;
constinit const PolicyLoss kCispoLoss{.names = kCispoNames, .terms = cispo_terms, .has_dual_clip = false};

}  // namespace tandem::trainer
