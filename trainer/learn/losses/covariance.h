// What each token that counts adds to the covariance of logprob and advantage over the batch (Cui et al. 2025):
// where it is large the policy grows surer of what it already prefers, and entropy falls. Private to
// trainer/learn/losses/.
#pragma once

#include <algorithm>
#include <vector>

#include "trainer/learn/batch.h"

namespace tandem::trainer {

// (A - mean A) (l - mean l), [rows * length]; 0 where the mask is 0.
inline Rows covariances(const LossBatch& batch, const Rows& advantages) {
  double count = 0, advantage = 0, logprob = 0;
  for (size_t i = 0; i < batch.mask.size(); ++i) {
    if (!batch.mask[i]) continue;
    ++count;
    advantage += advantages[i];
    logprob += batch.logprobs[i];
  }
  Rows result(batch.mask.size(), 0);
  for (size_t i = 0; i < batch.mask.size(); ++i) {
    if (batch.mask[i]) result[i] = (advantages[i] - advantage / count) * (batch.logprobs[i] - logprob / count);
  }
  return result;
}

// A share of the tokens that count, one at least.
inline size_t share_of_tokens(const LossBatch& batch, double share) {
  size_t count = 0;
  for (const uint8_t counts : batch.mask) count += counts;
  return std::max<size_t>(1, static_cast<size_t>(share * static_cast<double>(count)));
}

}  // namespace tandem::trainer
