// The head of lm_head.h in double, one row at a time, with all of its logits stored. Pure functions; any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/formats/bf16.h"

namespace tandem::kernels::reference {

struct Distribution {
  std::vector<double> logits;  // [vocabulary]
  double log_sum = 0;          // ln sum e^logit
  double logprob(size_t token) const { return logits[token] - log_sum; }
};

// `head` is [vocabulary][width] row by row, not packed; logits are multiplied by `scale`.
inline Distribution distribution(std::span<const bf16> hidden, std::span<const bf16> head, double scale = 1) {
  Distribution out;
  for (size_t token = 0; token < head.size(); token += hidden.size()) {
    double logit = 0;
    for (size_t i = 0; i < hidden.size(); ++i) logit += double{to_float(hidden[i])} * to_float(head[token + i]);
    out.logits.push_back(logit * scale);
  }
  const double peak = *std::max_element(out.logits.begin(), out.logits.end());
  double total = 0;
  for (const double logit : out.logits) total += std::exp(logit - peak);
  out.log_sum = peak + std::log(total);
  return out;
}

// - sum p ln p, in nats.
inline double entropy(const Distribution& d) {
  double sum = 0;
  for (size_t token = 0; token < d.logits.size(); ++token) sum -= std::exp(d.logprob(token)) * d.logprob(token);
  return sum;
}

// How much the loss grows with the log-probability of a token of this row.
struct TokenGradient {
  int32_t token;
  double gradient;
};
// dLoss / dlogit[v] of the logits as they are in `d` = sum over the picks of gradient ([v == token] - p_v).
inline std::vector<double> logit_gradient(const Distribution& d, std::span<const TokenGradient> picks) {
  double total = 0;
  for (const TokenGradient& pick : picks) total += pick.gradient;
  std::vector<double> gradient;
  for (size_t token = 0; token < d.logits.size(); ++token) gradient.push_back(-total * std::exp(d.logprob(token)));
  for (const TokenGradient& pick : picks) gradient[pick.token] += pick.gradient;
  return gradient;
}

}  // namespace tandem::kernels::reference
