// DPPO as in prime-rl: -A r + penalty (log r)^2; tokens whose probability moved too far lose the first term.
#include <cmath>

#include "trainer/learn/losses/policy_loss.h"
#include "trainer/learn/sequence_loss.h"

namespace tandem::trainer {
namespace {

void dppo_terms(const PolicyTokens& tokens, const Algorithm& a, LossCounts& counts, std::span<Term> terms) {
  for (size_t i = 0; i < terms.size(); ++i) {
    const double logprob = tokens.logprobs[i], log_ratio = tokens.log_ratios[i], advantage = tokens.advantages[i];
    const double ratio = std::exp(log_ratio), moved = std::exp(logprob) - std::exp(logprob - log_ratio);
    const bool keep = !(advantage > 0 && moved > a.mask_high) && !(advantage < 0 && moved < -a.mask_low);
    counts.masked += !keep;
    const double gain = keep ? advantage * ratio : 0;
    terms[i] = {a.penalty * log_ratio * log_ratio - gain, 2 * a.penalty * log_ratio - gain};
  }
}

constexpr LossName kDppoNames[] = {{"dppo", [](Algorithm&) {}}};

}  // namespace

extern const PolicyLoss kDppoLoss;
constinit const PolicyLoss kDppoLoss{.names = kDppoNames,
                                     .terms = dppo_terms,
                                     .against_sampler = true,
                                     .has_clip = false,
                                     .has_dual_clip = false,
                                     .has_mask = true};

}  // namespace tandem::trainer
