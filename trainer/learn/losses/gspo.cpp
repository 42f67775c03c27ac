// GSPO (Zheng et al. 2025): one ratio a sequence, the geometric mean of its tokens'; each token has the derivative of
// its own.
#include "trainer/learn/losses/policy_loss.h"

namespace tandem::trainer {

namespace {

constexpr LossName kGspoNames[] = {{"gspo", [](Algorithm& a) {
                                      a.advantage = AdvantageKind::kGrpo;
                                      a.clip_low = 3e-4;
                                      a.clip_high = 4e-4;
                                      a.aggregation = Aggregation::kSeqMeanTokenMean;
                                    }}};

}  // namespace

extern const PolicyLoss kGspoLoss;
constinit const PolicyLoss kGspoLoss{.names = kGspoNames, .terms = clip_terms, .one_ratio = true};

}  // namespace tandem::trainer
