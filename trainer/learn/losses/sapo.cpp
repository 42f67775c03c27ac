// SAPO (Gao et al. 2025): in place of a clip a soft gate f(r) = 4 / tau sigmoid(tau (r - 1)), with one temperature for
// advantages above 0 and another for the rest. The loss is -A f(r).
#include <cmath>

#include "trainer/learn/losses/policy_loss.h"
#include "trainer/learn/sequence_loss.h"

namespace tandem::trainer {
namespace {

constexpr std::string_view kPositive = "sapo.tau_positive", kNegative = "sapo.tau_negative";

void sapo_terms(const PolicyTokens& tokens, const Algorithm& a, LossCounts&, std::span<Term> terms) {
  const double positive = own_number(a, kPositive), negative = own_number(a, kNegative);
  for (size_t i = 0; i < terms.size(); ++i) {
    const double log_ratio = tokens.log_ratios[i], advantage = tokens.advantages[i];
    const double ratio = std::exp(bounded(log_ratio)), tau = advantage > 0 ? positive : negative;
    const double gate = 1 / (1 + std::exp(-tau * (ratio - 1)));
    terms[i] = {-advantage * 4 / tau * gate, -advantage * 4 * gate * (1 - gate) * ratio};
    if (is_beyond_bound(log_ratio)) terms[i].gradient = 0;
  }
}

constexpr LossKey kSapoKeys[] = {{kPositive, 1.0, "Of sapo, steepness of the gate for advantages above 0", 1e-3, 1e3},
                                 {kNegative, 1.05, "Of sapo, steepness of the gate for the others", 1e-3, 1e3}};
constexpr LossName kSapoNames[] = {{"sapo", [](Algorithm& a) {
                                      a.advantage = AdvantageKind::kGrpo;
                                      a.aggregation = Aggregation::kSeqMeanTokenMean;
                                    }}};

}  // namespace

extern const PolicyLoss kSapoLoss;
constinit const PolicyLoss kSapoLoss{
    .names = kSapoNames, .keys = kSapoKeys, .terms = sapo_terms, .has_clip = false, .has_dual_clip = false};

}  // namespace tandem::trainer
