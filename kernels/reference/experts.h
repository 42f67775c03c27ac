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
inline Choice route(std::span<const float> logits, int top_k, bool normalise) {
  Choice out;
  out.ids.resize(logits.size());
  std::iota(out.ids.begin(), out.ids.end(), 0);
  std::stable_sort(out.ids.begin(), out.ids.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  out.ids.resize(top_k);
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
  const int top_k = static_cast<int>(grad_weights.size());
  const Choice choice = route(logits, top_k, normalise);
  double mean = 0;
  for (int rank = 0; rank < top_k; ++rank) mean += choice.weights[rank] * grad_weights[rank];
  std::vector<double> out = softmax(logits);
  for (double& gradient : out) gradient = normalise ? 0 : -gradient * mean;
  for (int rank = 0; rank < top_k; ++rank) {
    out[choice.ids[rank]] = choice.weights[rank] * (grad_weights[rank] - mean);
  }
  return out;
}

// The same by sigmoids: chosen by sigmoid + bias, weighted by scale * sigmoid, or by its share of their sum.
inline Choice route_sigmoid(std::span<const float> logits, std::span<const float> bias, int top_k, double scale,
                            bool normalise, int groups = 1, int top_k_groups = 1) {
  Choice out;
  std::vector<double> scores;
  for (const float logit : logits) scores.push_back(1 / (1 + std::exp(-double{logit})));
  // Group by group, best first: its two best together.
  const int size = static_cast<int>(logits.size()) / groups;
  std::vector<std::pair<double, int>> sums;
  for (int group = 0; group < groups && groups > 1; ++group) {
    std::vector<double> keys;
    for (int i = group * size; i < (group + 1) * size; ++i) keys.push_back(scores[i] + bias[i]);
    std::sort(keys.rbegin(), keys.rend());
    sums.emplace_back(keys[0] + keys[1], group);
  }
  std::stable_sort(sums.begin(), sums.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  const auto looked_at = [&](int expert) {
    const auto end = sums.begin() + std::min<size_t>(top_k_groups, sums.size());
    return sums.empty() || std::any_of(sums.begin(), end, [&](const auto& sum) { return sum.second == expert / size; });
  };
  for (int i = 0; i < static_cast<int>(logits.size()); ++i) {
    if (looked_at(i)) out.ids.push_back(i);
  }
  std::stable_sort(out.ids.begin(), out.ids.end(),
                   [&](int a, int b) { return scores[a] + bias[a] > scores[b] + bias[b]; });
  out.ids.resize(top_k);
  double total = 0;
  for (const int32_t id : out.ids) total += scores[id];
  for (const int32_t id : out.ids) out.weights.push_back(scale * (normalise ? scores[id] / total : scores[id]));
  return out;
}

// dlogit = ds s (1 - s) of a chosen expert, with ds = scale g, or (scale g - sum of w g) / (sum of s); 0 of another.
inline std::vector<double> route_sigmoid_backward(std::span<const float> logits, const Choice& choice,
                                                  std::span<const float> grad_weights, double scale, bool normalise) {
  std::vector<double> out(logits.size(), 0);
  double mean = 0, total = 0;
  const auto score = [&](int32_t id) { return 1 / (1 + std::exp(-double{logits[id]})); };
  for (size_t rank = 0; rank < choice.ids.size(); ++rank) {
    mean += choice.weights[rank] * grad_weights[rank];
    total += score(choice.ids[rank]);
  }
  for (size_t rank = 0; rank < choice.ids.size(); ++rank) {
    const double s = score(choice.ids[rank]), gradient = scale * grad_weights[rank];
    out[choice.ids[rank]] = (normalise ? (gradient - mean) / total : gradient) * s * (1 - s);
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
