// All losses, in the order in which help shows their names.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "trainer/learn/losses/policy_loss.h"

namespace tandem::trainer {

extern const PolicyLoss kGspoLoss, kCispoLoss, kDppoLoss, kSapoLoss, kGmpoLoss, kClipCovLoss, kKlCovLoss, kTorchLoss;

std::span<const PolicyLoss* const> policy_losses() {
  static constexpr const PolicyLoss* kLosses[] = {&kClipLoss, &kGspoLoss,    &kCispoLoss, &kDppoLoss, &kSapoLoss,
                                                  &kGmpoLoss, &kClipCovLoss, &kKlCovLoss, &kTorchLoss};
  return kLosses;
}

double own_number(const Algorithm& algorithm, std::string_view name) {
  const auto given = algorithm.own.find(name);
  if (given != algorithm.own.end()) return given->second;
  for (const LossKey& key : algorithm.policy->keys) {
    if (key.name == name) return key.preset;
  }
  std::abort();
}

namespace {
constexpr double kLogBound = 20;
}
double bounded(double log_ratio) { return std::clamp(log_ratio, -kLogBound, kLogBound); }
bool is_beyond_bound(double log_ratio) { return std::abs(log_ratio) > kLogBound; }

}  // namespace tandem::trainer
