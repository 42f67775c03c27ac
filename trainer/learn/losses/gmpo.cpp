// GMPO (Zhao et al. 2025): the ratio of a sequence is the geometric mean of its tokens' ratios, each clipped before;
// the loss is -A times it. clip_low and clip_high are bounds of the log ratio here, as in the paper.
#include <algorithm>
#include <cmath>

#include "trainer/learn/losses/policy_loss.h"
#include "trainer/learn/sequence_loss.h"

namespace tandem::trainer {
namespace {

// Each token carries the loss of its sequence and the derivative by its own logprob, times the number of tokens:
// seq_mean_token_mean makes the paper's loss of them.
void gmpo_terms(const PolicyTokens& tokens, const Algorithm& a, LossCounts& counts, std::span<Term> terms) {
  if (terms.empty()) return;
  const auto count = static_cast<double>(terms.size());
  double sum = 0, advantage = 0;
  std::vector<uint8_t> clipped(terms.size());
  for (size_t i = 0; i < terms.size(); ++i) {
    const double log_ratio = tokens.log_ratios[i], own = tokens.advantages[i];
    const bool low = own < 0 && log_ratio<-a.clip_low, high = own> 0 && log_ratio > a.clip_high;
    counts.clipped_low += low;
    counts.clipped_high += high;
    clipped[i] = low || high;
    if (own != 0) sum += low ? -a.clip_low : high ? a.clip_high : log_ratio;
    advantage += own;
  }
  const double loss = -(advantage / count) * std::exp(bounded(sum / count));
  for (size_t i = 0; i < terms.size(); ++i)
    terms[i] = {loss, clipped[i] != 0 || tokens.advantages[i] == 0 || is_beyond_bound(sum / count) ? 0 : loss};
}

constexpr LossName kGmpoNames[] = {{"gmpo", [](Algorithm& a) {
                                      a.advantage = AdvantageKind::kGrpo;
                                      a.clip_low = a.clip_high = 0.4;
                                      a.aggregation = Aggregation::kSeqMeanTokenMean;
                                    }}};

}  // namespace

extern const PolicyLoss kGmpoLoss;
constinit const PolicyLoss kGmpoLoss{.names = kGmpoNames, .terms = gmpo_terms, .has_dual_clip = false};

}  // namespace tandem::trainer
