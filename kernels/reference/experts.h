// The operations of experts.h in double and nowhere rounded. Rows are dense; their number is what the sizes say. Pure
// functions; any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/formats/bf16.h"

namespace tandem::kernels::reference {

inline std::vector<double> softmax(std::span<const float> logits) {
  const double peak = *std::max_element(logits.begin(), logits.end());
  std::vector<double> out;
  for (const float logit : logits) out.push_back(std::exp(logit - peak));
  const double total = std::accumulate(out.begin(), out.end(), 0.0);
  for (double& p : out) p /= total;
  return out;
}

struct Choice {
  std::vector<int32_t> ids;
  std::vector<double> weights;
};
// The experts of one row: the largest logits first, of equal ones the lowest number.
inline Choice route(std::span<const float> logits, int chosen, bool normalise) {
  Choice out;
  out.ids.resize(logits.size());
  std::iota(out.ids.begin(), out.ids.end(), 0);
  std::stable_sort(out.ids.begin(), out.ids.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  out.ids.resize(chosen);
  const auto p = softmax(logits);
  double total = 0;
  for (const int32_t id : out.ids) total += p[id];
  for (const int32_t id : out.ids) out.weights.push_back(normalise ? p[id] / total : p[id]);
  return out;
}

// With w the weights of the chosen and g their gradients, m = sum of w g: dlogit = w (g - m) for a chosen expert; for
// another one 0 where weights were normalised, as its own logit then changes none of them, and -p m else.
inline std::vector<double> route_backward(std::span<const float> logits, std::span<const float> grad_weights,
                                          bool normalise) {
  const int chosen = static_cast<int>(grad_weights.size());
  const Choice choice = route(logits, chosen, normalise);
  double mean = 0;
  for (int rank = 0; rank < chosen; ++rank) mean += choice.weights[rank] * grad_weights[rank];
  std::vector<double> out = softmax(logits);
  for (double& slope : out) slope = normalise ? 0 : -slope * mean;
  for (int rank = 0; rank < chosen; ++rank) {
    out[choice.ids[rank]] = choice.weights[rank] * (grad_weights[rank] - mean);
  }
  return out;
}

// residual + sum over ranks of weight * y[place], for one row.
inline std::vector<double> combine(std::span<const bf16> residual, std::span<const bf16> y,
                                   std::span<const int32_t> places, std::span<const float> weights) {
  std::vector<double> out;
  for (size_t i = 0; i < residual.size(); ++i) {
    double sum = to_float(residual[i]);
    for (size_t rank = 0; rank < places.size(); ++rank) {
      sum += double{weights[rank]} * to_float(y[places[rank] * residual.size() + i]);
    }
    out.push_back(sum);
  }
  return out;
}

}  // namespace tandem::kernels::reference
