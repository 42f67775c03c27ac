// Holds the entropy of the policy up: a bonus whose coefficient grows while the entropy is below a target, and shrinks
// while it is not.
//
// After a step with entropy e: c grows by `step` where e < target, else it shrinks by `step`; it stays between 0 and
// `most`. The next step has the bonus c where e <= target, else none. The gradient of the bonus is that of the score
// function, -dH/dl of a drawn token = l + b for any constant b; here b is e, so that the mean is about 0.
//
// Sources: the control of Skywork-OR1 (He 2025, arXiv 2505.22312), with the entropy of the step before in place of a
// second pass; the gradient, Williams 1992. docs/algorithms.md.
//
// Thread safety: as any value.
#pragma once

#include <optional>
#include <span>

#include "base/json.h"
#include "base/status.h"
#include "trainer/learn/algorithm.h"

namespace tandem::trainer {

// The bonus of one step.
struct EntropyBonus {
  double coefficient = 0;  // 0: none
  double entropy = 0;      // of the step before
  // Adds d(-coefficient * H)/dl to the gradient of each token of a sequence. `weights`: of the tokens, empty: 1;
  // `tokens`: the sum of the weights of all sequences.
  void add(std::span<const double> logprobs, std::span<const double> weights, double tokens,
           std::span<double> gradients) const;
};

class EntropyControl {
 public:
  EntropyBonus bonus(const EntropyTarget& target) const;
  // After a step of that entropy. 0, of a step without a gradient, changes nothing; without a target all is forgotten.
  void add(double entropy, const EntropyTarget& target);

  // {"coefficient", "entropy"}; null before the first step. kCorrupt where it is none of these.
  Json state() const;
  Status restore(const Json& state);

 private:
  double coefficient_ = 0;
  std::optional<double> entropy_;
};

}  // namespace tandem::trainer
