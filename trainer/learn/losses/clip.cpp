// PPO's clipped ratio (Schulman et al. 2017), and the algorithms that differ from it by their advantages.
#include <algorithm>
#include <cmath>

#include "trainer/learn/losses/policy_loss.h"
#include "trainer/learn/sequence_loss.h"

namespace tandem::trainer {

Term clipped_term(double ratio, double advantage, const Algorithm& a) {
  const double free = -advantage * ratio;
  const double clipped = -advantage * std::clamp(ratio, 1 - a.clip_low, 1 + a.clip_high);
  const Term term = clipped > free ? Term{clipped, 0} : Term{free, free};
  if (advantage < 0 && a.dual_clip > 0 && term.value > -advantage * a.dual_clip) return {-advantage * a.dual_clip, 0};
  return term;
}

void clip_terms(const PolicyTokens& tokens, const Algorithm& a, LossCounts& counts, std::span<Term> terms) {
  for (size_t i = 0; i < terms.size(); ++i) {
    const double log_ratio = tokens.log_ratios[i], advantage = tokens.advantages[i];
    const double ratio = std::exp(bounded(log_ratio));
    counts.clipped_low += ratio < 1 - a.clip_low && advantage < 0;
    counts.clipped_high += ratio > 1 + a.clip_high && advantage > 0;
    terms[i] = clipped_term(ratio, advantage, a);
    if (is_beyond_bound(log_ratio)) terms[i].gradient = 0;
  }
}

namespace {

constexpr LossName kClipNames[] = {
    {"ppo",
     [](Algorithm& a) {
       a.advantage = AdvantageKind::kGae;
       a.whiten_advantages = true;
     }},
    {"grpo", [](Algorithm& a) { a.advantage = AdvantageKind::kGrpo; }},
    {"dr_grpo", [](Algorithm&) {}},
    {"dapo",
     [](Algorithm& a) {
       a.advantage = AdvantageKind::kGrpo;
       a.clip_high = 0.28;
       a.dynamic_sampling = 10;
     }},
    {"rloo", [](Algorithm& a) { a.advantage = AdvantageKind::kRloo; }},
    {"opo", [](Algorithm& a) { a.advantage = AdvantageKind::kOpo; }},
    {"maxrl", [](Algorithm& a) { a.advantage = AdvantageKind::kMaxRl; }},
    {"pass_at_k", [](Algorithm& a) { a.advantage = AdvantageKind::kPassAtK; }},
    {"gigpo", [](Algorithm& a) { a.advantage = AdvantageKind::kGigpo; }},
    {"reinforce++",
     [](Algorithm& a) {
       a.advantage = AdvantageKind::kReturns;
       a.whiten_advantages = true;
     }},
};

}  // namespace

constinit const PolicyLoss kClipLoss{.names = kClipNames, .terms = clip_terms};

}  // namespace tandem::trainer
