// A loss of the user's own: docs/custom-loss.md.
#include "trainer/learn/losses/policy_loss.h"

namespace tandem::trainer {
namespace {

constexpr LossName kTorchNames[] = {{"torch", [](Algorithm&) {}}};

}  // namespace

extern const PolicyLoss kTorchLoss;
constinit const PolicyLoss kTorchLoss{
    .names = kTorchNames, .is_function = true, .has_clip = false, .has_dual_clip = false};

}  // namespace tandem::trainer
