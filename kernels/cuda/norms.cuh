// RMS norm of rows and of heads, forward and backward: formulas and order of additions of kernels/transformer_ops.h. A
// head is a row that lies elsewhere.
#pragma once

#include "kernels/cuda/rows.cuh"

namespace tandem::kernels::cuda {

TANDEM_HD float inverse_rms(float squares, int width, float epsilon) {
  return 1.0f / sqrtf(squares / static_cast<float>(width) + epsilon);
}

// Where what is normed lies: `count` pieces of `width` elements, `heads` of them in a row.
struct NormedRows {
  int64_t count, stride;
  int heads, width;
  TANDEM_HD int64_t at(int64_t index) const { return index / heads * stride + index % heads * width; }
};
inline NormedRows dense_rows(int rows, int width) { return {rows, width, 1, width}; }
inline NormedRows heads_of_rows(int rows, int64_t stride, int heads, int head_size) {
  return {static_cast<int64_t>(rows) * heads, stride, heads, head_size};
}

template <typename T>
struct RmsNormKernel : RowLanes {
  using Private = Nothing;
  NormedRows rows;
  const T* in;
  const T* weight;
  T* out;
  float epsilon;

  TANDEM_HD RmsNormKernel(const NormedRows& lie, const T* x, const T* scale, T* target, float eps)
      : rows(lie), in(x), weight(scale), out(target), epsilon(eps) {}
  TANDEM_HD bool run(int64_t block, int phase, int thread, Shared& shared, Private&) const {
    const int64_t row = row_of(block, thread);
    const T* x = in + rows.at(row);
    if (phase == 0) {
      const auto value = [&](int i) { return value_of(x[i]); };
      if (row < rows.count) put(thread, rows.width, shared, value, value);
      return true;
    }
    if (row >= rows.count) return false;
    const float inverse = inverse_rms(total(thread, shared), rows.width, epsilon);
    for (int i = lane_of(thread); i < rows.width; i += kLanes) {
      const float normed = value_of(stored<T>(value_of(x[i]) * inverse));
      out[rows.at(row) + i] = stored<T>(normed * value_of(weight[i]));
    }
    return false;
  }
};
template <typename Execution, OneOf<TandemCudaRmsNorm, TandemCudaRmsNormFloat> Arguments>
int operate(Execution& execution, const Arguments& n) {
  if (!n.x || !n.weight || !n.out) return kTandemCudaNull;
  if (n.rows < 0 || n.width < 0) return kTandemCudaSize;
  return start(execution, RmsNormKernel(dense_rows(n.rows, n.width), n.x, n.weight, n.out, n.epsilon),
               RowLanes::blocks(n.rows));
}

inline int check_heads(int rows, int64_t stride, int heads, int head_size) {
  if (rows < 0 || heads < 0) return kTandemCudaSize;
  if (head_size <= 0) return kTandemCudaShape;
  return stride < static_cast<int64_t>(heads) * head_size ? kTandemCudaStride : kTandemCudaOk;
}
template <typename Execution, OneOf<TandemCudaHeadNorm, TandemCudaHeadNormFloat> Arguments>
int operate(Execution& execution, const Arguments& n) {
  using T = std::remove_reference_t<decltype(*n.x)>;
  if (!n.x || !n.weight) return kTandemCudaNull;
  if (const int code = check_heads(n.rows, n.stride, n.heads, n.head_size)) return code;
  if (n.heads == 0) return kTandemCudaOk;
  const NormedRows rows = heads_of_rows(n.rows, n.stride, n.heads, n.head_size);
  return start(execution, RmsNormKernel<T>(rows, n.x, n.weight, n.x, n.epsilon), RowLanes::blocks(rows.count));
}

// grad_x = inverse * (w g - x dot), dot = inverse^2 * mean(w g x): first both numbers of each row, then the
// gradient of the weight by pieces of rows, and last grad_x, which may lie on grad_out.
struct RmsNormBackward {
  NormedRows rows;
  const uint16_t* x;
  const uint16_t* weight;
  const uint16_t* grad_out;
  uint16_t* grad_x;
  float epsilon;
  int accumulate;
};
struct RowFactors {
  float inverse, dot;
};

struct RmsNormFactors : RowLanes {
  struct Private {
    float inverse;
  };
  RmsNormBackward n;
  RowFactors* factors;

  TANDEM_HD RmsNormFactors(const RmsNormBackward& arguments, RowFactors* out) : n(arguments), factors(out) {}
  TANDEM_HD bool run(int64_t block, int phase, int thread, Shared& shared, Private& own) const {
    const int64_t row = row_of(block, thread);
    const bool there = row < n.rows.count;
    const int width = n.rows.width;
    const uint16_t* x = n.x + n.rows.at(row);
    const uint16_t* grad = n.grad_out + n.rows.at(row);
    const auto value = [&](int i) { return from_bf16(x[i]); };
    switch (phase) {
      case 0:
        if (there) put(thread, width, shared, value, value);
        return true;
      case 1:
        if (there) own.inverse = inverse_rms(total(thread, shared), width, n.epsilon);
        return true;
      case 2:
        if (there) {
          put(
              thread, width, shared, [&](int i) { return from_bf16(n.weight[i]) * from_bf16(grad[i]); }, value);
        }
        return true;
      default:
        if (there && lane_of(thread) == 0) {
          factors[row] = {own.inverse, total(thread, shared) / static_cast<float>(width) * own.inverse * own.inverse};
        }
        return false;
    }
  }
};

// What one row of all heads adds to the gradient of the weight.
struct RmsNormWeightRow {
  RmsNormBackward n;
  const RowFactors* factors;
  TANDEM_HD float operator()(float sum, int64_t row, int column) const {
    for (int64_t head = row * n.rows.heads; head < (row + 1) * n.rows.heads; ++head) {
      const int64_t at = n.rows.at(head) + column;
      sum = fmaf(from_bf16(n.grad_out[at]), from_bf16(n.x[at]) * factors[head].inverse, sum);
    }
    return sum;
  }
};

struct RmsNormGradient {
  RmsNormBackward n;
  const RowFactors* factors;
  TANDEM_HD void operator()(int64_t i) const {
    const int64_t index = i / n.rows.width, column = i % n.rows.width, at = n.rows.at(index) + column;
    const RowFactors row = factors[index];
    const float old = n.accumulate ? from_bf16(n.grad_x[at]) : 0.0f;
    const float inner = from_bf16(n.weight[column]) * from_bf16(n.grad_out[at]) - from_bf16(n.x[at]) * row.dot;
    n.grad_x[at] = to_bf16_bits(row.inverse * inner + old);
  }
};

template <typename Execution>
int rms_norm_backward(Execution& execution, const RmsNormBackward& n, void* workspace, float* grad_weight) {
  RowFactors* factors = static_cast<RowFactors*>(workspace);
  float* partial = reinterpret_cast<float*>(factors + n.rows.count);
  const int rows = static_cast<int>(n.rows.count / n.rows.heads);
  return in_order(
      [&] { return start(execution, RmsNormFactors(n, factors), RowLanes::blocks(n.rows.count)); },
      [&] {
        return sum_over_rows(execution, rows, n.rows.width, RmsNormWeightRow{n, factors}, partial, grad_weight);
      },
      [&] {
        return each_element(execution, n.rows.count * n.rows.width, RmsNormGradient{n, factors});
      });
}

inline size_t rms_norm_backward_workspace(int rows, int width) {
  return static_cast<size_t>(rows) * sizeof(RowFactors) + sum_over_rows_workspace(rows, width);
}
template <typename Execution>
int operate(Execution& execution, const TandemCudaRmsNormBackward& n) {
  if (!n.x || !n.weight || !n.grad_out || !n.grad_x || !n.grad_weight || !n.workspace) return kTandemCudaNull;
  if (n.rows < 0 || n.width < 0) return kTandemCudaSize;
  if (n.workspace_bytes < rms_norm_backward_workspace(n.rows, n.width)) return kTandemCudaWorkspace;
  const RmsNormBackward all{dense_rows(n.rows, n.width), n.x, n.weight, n.grad_out, n.grad_x, n.epsilon, n.accumulate};
  return rms_norm_backward(execution, all, n.workspace, n.grad_weight);
}

inline size_t head_norm_backward_workspace(int rows, int heads, int head_size) {
  return static_cast<size_t>(rows) * heads * sizeof(RowFactors) + sum_over_rows_workspace(rows, head_size);
}
template <typename Execution>
int operate(Execution& execution, const TandemCudaHeadNormBackward& n) {
  if (!n.x || !n.grad || !n.weight || !n.grad_weight || !n.workspace) return kTandemCudaNull;
  if (const int code = check_heads(n.rows, n.stride, n.heads, n.head_size)) return code;
  if (n.workspace_bytes < head_norm_backward_workspace(n.rows, n.heads, n.head_size)) return kTandemCudaWorkspace;
  if (n.heads == 0) return kTandemCudaOk;
  const RmsNormBackward all{
      heads_of_rows(n.rows, n.stride, n.heads, n.head_size), n.x, n.weight, n.grad, n.grad, n.epsilon, 0};
  return rms_norm_backward(execution, all, n.workspace, n.grad_weight);
}

}  // namespace tandem::kernels::cuda
