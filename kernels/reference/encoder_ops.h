// The operations of encoder_ops.h in double and nowhere rounded. Pure functions; any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace tandem::kernels::reference {

// Rows are dense, as many as the sizes say.
inline std::vector<double> layer_norm(std::span<const float> x, std::span<const float> weight,
                                      std::span<const float> bias, double epsilon) {
  const size_t width = weight.size();
  std::vector<double> out(x.size());
  for (size_t row = 0; row < x.size(); row += width) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < width; ++i) mean += x[row + i] / static_cast<double>(width);
    for (size_t i = 0; i < width; ++i) variance += std::pow(x[row + i] - mean, 2) / static_cast<double>(width);
    for (size_t i = 0; i < width; ++i) {
      out[row + i] = (x[row + i] - mean) / std::sqrt(variance + epsilon) * weight[i] + bias[i];
    }
  }
  return out;
}

inline double gelu(double x) { return x * std::erfc(-x / std::sqrt(2.0)) / 2; }

// One row of one head: `query` of head_size; keys and values are those of the sequence, [row][head_size].
inline std::vector<double> bidirectional_attention(std::span<const float> query, std::span<const float> keys,
                                                   std::span<const float> values, double scale) {
  const size_t size = query.size(), rows = keys.size() / size;
  std::vector<double> p(rows, 0), out(size, 0);
  for (size_t j = 0; j < rows; ++j) {
    for (size_t i = 0; i < size; ++i) p[j] += scale * query[i] * keys[j * size + i];
  }
  const double peak = rows == 0 ? 0 : *std::max_element(p.begin(), p.end());
  double total = 0;
  for (double& x : p) total += x = std::exp(x - peak);
  for (size_t j = 0; j < rows; ++j) {
    for (size_t i = 0; i < size; ++i) out[i] += p[j] / total * values[j * size + i];
  }
  return out;
}

}  // namespace tandem::kernels::reference
