// The attention of attention.h and its gradient, in double: a softmax over all keys at once, without blocks or pages.
//
// Query, key and value rows lie in arrays of one stride, as columns of a fused [q | k | v] matrix do. Query head h
// reads key head h / (heads / kv_heads). Pure functions; any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "kernels/attention.h"

namespace tandem::kernels::reference {

struct Attention {
  AttentionShape shape;
  const bf16* queries;
  const bf16* keys;
  const bf16* values;
  size_t stride;

  size_t kv_head(int head) const { return size_t(head) / (shape.heads / shape.kv_heads); }
  double query(int row, int head, int i) const { return to_float(queries[row * stride + head * shape.head_size + i]); }
  double key(int row, int head, int i) const {
    return to_float(keys[row * stride + kv_head(head) * shape.head_size + i]);
  }
  double value(int row, int head, int i) const {
    return to_float(values[row * stride + kv_head(head) * shape.values() + i]);
  }
};

// p_j = e^(s_j) / sum e^(s), s_j = scale q . k_j, over the rows in `path`.
inline std::vector<double> attention_probabilities(const Attention& a, int row, int head, std::span<const int> path) {
  std::vector<double> p(path.size(), 0);
  for (size_t j = 0; j < path.size(); ++j) {
    for (int i = 0; i < a.shape.head_size; ++i) p[j] += a.query(row, head, i) * a.key(path[j], head, i);
    p[j] *= a.shape.scale;
  }
  const double peak = *std::max_element(p.begin(), p.end());
  double total = 0;
  for (double& x : p) total += x = std::exp(x - peak);
  for (double& x : p) x /= total;
  return p;
}

// o = sum p_j v_j.
inline std::vector<double> attention(const Attention& a, int row, int head, std::span<const int> path) {
  const auto p = attention_probabilities(a, row, head, path);
  std::vector<double> out(a.shape.values(), 0);
  for (size_t j = 0; j < path.size(); ++j) {
    for (int i = 0; i < a.shape.values(); ++i) out[i] += p[j] * a.value(path[j], head, i);
  }
  return out;
}

struct AttentionGradients {
  double* queries;  // all added to, with the inputs' layout and stride
  double* keys;
  double* values;
};

// One query row of one head: dv_j += p_j g, dp_j = g . v_j, ds_j = p_j (dp_j - sum p dp), dq += scale ds_j k_j,
// dk_j += scale ds_j q. `grad_out` is that head's, of value_size.
inline void attention_backward(const Attention& a, int row, int head, std::span<const int> path, const bf16* grad_out,
                               const AttentionGradients& grads) {
  const auto p = attention_probabilities(a, row, head, path);
  const int size = a.shape.head_size;
  std::vector<double> dp(path.size(), 0);
  double mean = 0;
  for (size_t j = 0; j < path.size(); ++j) {
    for (int i = 0; i < a.shape.values(); ++i) dp[j] += to_float(grad_out[i]) * a.value(path[j], head, i);
    mean += p[j] * dp[j];
  }
  for (size_t j = 0; j < path.size(); ++j) {
    const double gradient = a.shape.scale * p[j] * (dp[j] - mean);
    for (int i = 0; i < size; ++i) {
      grads.queries[row * a.stride + head * size + i] += gradient * a.key(path[j], head, i);
      grads.keys[path[j] * a.stride + a.kv_head(head) * size + i] += gradient * a.query(row, head, i);
    }
    for (int i = 0; i < a.shape.values(); ++i) {
      grads.values[path[j] * a.stride + a.kv_head(head) * a.shape.values() + i] += p[j] * to_float(grad_out[i]);
    }
  }
}

}  // namespace tandem::kernels::reference
