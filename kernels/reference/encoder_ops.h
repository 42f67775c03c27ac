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

struct LayerNormGradients {
  std::vector<double> x, weight, bias;
};
// With r = 1 / sqrt(variance + epsilon), n = (x - mean) r, g = weight grad_out: dx = r (g - mean(g) - n mean(g n)),
// dweight = sum over rows of grad_out n, dbias of grad_out.
inline LayerNormGradients layer_norm_backward(std::span<const float> x, std::span<const float> weight,
                                              std::span<const float> grad_out, double epsilon) {
  const size_t width = weight.size();
  const std::vector<float> ones(width, 1), zeros(width, 0);
  const std::vector<double> normed = layer_norm(x, ones, zeros, epsilon);
  LayerNormGradients grads{std::vector<double>(x.size()), std::vector<double>(width, 0), std::vector<double>(width, 0)};
  for (size_t row = 0; row < x.size(); row += width) {
    double mean = 0, variance = 0, gradient = 0, dot = 0;
    for (size_t i = 0; i < width; ++i) mean += x[row + i] / static_cast<double>(width);
    for (size_t i = 0; i < width; ++i) variance += std::pow(x[row + i] - mean, 2) / static_cast<double>(width);
    for (size_t i = 0; i < width; ++i) {
      const double g = double{weight[i]} * grad_out[row + i] / static_cast<double>(width);
      gradient += g;
      dot += g * normed[row + i];
      grads.weight[i] += grad_out[row + i] * normed[row + i];
      grads.bias[i] += grad_out[row + i];
    }
    for (size_t i = 0; i < width; ++i) {
      const double g = double{weight[i]} * grad_out[row + i];
      grads.x[row + i] = (g - gradient - normed[row + i] * dot) / std::sqrt(variance + epsilon);
    }
  }
  return grads;
}

inline double gelu_derivative(double x) {
  return std::erfc(-x / std::sqrt(2.0)) / 2 + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
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
