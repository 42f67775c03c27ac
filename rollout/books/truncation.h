// What sampling cuts off the distribution that the episodes of training are drawn from.
//
// So many of the likeliest tokens stay (top-k); of these the likeliest until their probabilities have a sum (top-p); of
// these all that are not less likely than a part of the likeliest (min-p). It is the policy's own, as its temperature
// is: which tokens stayed is recorded with each token, and the trainer computes the distribution over those.
//
// Thread safety: as any value.
#pragma once

#include "base/status.h"

namespace tandem::rollout {

struct Truncation {
  int top_k = 0;    // 0: all
  float top_p = 1;  // above 0, at most 1
  float min_p = 0;  // from 0, below 1
  friend bool operator==(const Truncation&, const Truncation&) = default;

  bool any() const { return top_k > 0 || top_p < 1 || min_p > 0; }
};

inline Status check(const Truncation& cut) {
  const bool holds = cut.top_k >= 0 && cut.top_p > 0 && cut.top_p <= 1 && cut.min_p >= 0 && cut.min_p < 1;
  return holds ? Status() : Status::invalid("top_k is below 0, top_p outside (0, 1] or min_p outside [0, 1)");
}

}  // namespace tandem::rollout
