// What an encoder of sentences computes, in fp32: norms about the mean, GELU, and attention in both directions, by the
// formulas and orders of kernels/cpu/encoder_ops.inl.
#pragma once

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/rows.cuh"

namespace tandem::kernels::cuda {

// The mean of a row, 1 / sqrt(variance + epsilon), and of the gradient the means of g and of n g.
struct RowMoments {
  float mean, inverse, gradient, dot;
  TANDEM_HD float normed(float value) const { return (value - mean) * inverse; }
};

// Phases 0 to 3 of a row: its mean, then its squares about the mean.
struct MomentLanes : RowLanes {
  struct Private {
    RowMoments row;
  };
  TANDEM_HD static void moments(int phase, int thread, const float* x, int width, float epsilon, Shared& shared,
                                RowMoments& row) {
    const auto count = static_cast<float>(width);
    switch (phase) {
      case 0:
        return put(
            thread, width, shared, [&](int i) { return x[i]; }, [](int) { return 1.0f; });
      case 1:
        row.mean = total(thread, shared) / count;
        return;
      case 2: {
        const auto distance = [&](int i) { return x[i] - row.mean; };
        return put(thread, width, shared, distance, distance);
      }
      default:
        row.inverse = 1.0f / sqrtf(total(thread, shared) / count + epsilon);
    }
  }
};

struct LayerNormKernel : MomentLanes {
  TandemCudaLayerNorm n;

  TANDEM_HD explicit LayerNormKernel(const TandemCudaLayerNorm& arguments) : n(arguments) {}
  TANDEM_HD bool run(int64_t block, int phase, int thread, Shared& shared, Private& own) const {
    const int64_t row = row_of(block, thread);
    const float* x = n.x + row * n.width;
    if (row < n.rows) moments(phase, thread, x, n.width, n.epsilon, shared, own.row);
    if (phase < 3) return true;
    for (int i = lane_of(thread); row < n.rows && i < n.width; i += kLanes) {
      n.out[row * n.width + i] = fmaf(own.row.normed(x[i]), n.weight[i], n.bias[i]);
    }
    return false;
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaLayerNorm& n) {
  if (!n.x || !n.weight || !n.bias || !n.out) return kTandemCudaNull;
  if (n.rows < 0 || n.width < 0) return kTandemCudaSize;
  return start(execution, LayerNormKernel(n), RowLanes::blocks(n.rows));
}

// With g = weight * grad_out and n = (x - mean) r: grad_x = r (g - mean(g) - n mean(g n)). First all four numbers of a
// row, then the gradients of weight and bias, and last grad_x, which may lie on grad_out.
struct LayerNormMoments : MomentLanes {
  TandemCudaLayerNormBackward n;
  RowMoments* rows;

  TANDEM_HD LayerNormMoments(const TandemCudaLayerNormBackward& arguments, RowMoments* out) : n(arguments), rows(out) {}
  TANDEM_HD bool run(int64_t block, int phase, int thread, Shared& shared, Private& own) const {
    const int64_t row = row_of(block, thread);
    if (row < n.rows) step(row, phase, thread, shared, own.row);
    return phase < 7;
  }

 private:
  TANDEM_HD void step(int64_t row, int phase, int thread, Shared& shared, RowMoments& own) const {
    const float* x = n.x + row * n.width;
    const float* grad = n.grad_out + row * n.width;
    const auto width = static_cast<float>(n.width);
    const auto gradient = [&](int i) { return grad[i] * n.weight[i]; };
    if (phase < 4) return moments(phase, thread, x, n.width, n.epsilon, shared, own);
    if (phase == 4) return put(thread, n.width, shared, gradient, [](int) { return 1.0f; });
    if (phase == 5) own.gradient = total(thread, shared) / width;
    if (phase == 6) put(thread, n.width, shared, gradient, [&](int i) { return own.normed(x[i]); });
    if (phase == 7 && lane_of(thread) == 0) {
      own.dot = total(thread, shared) / width;
      rows[row] = own;
    }
  }
};
struct LayerNormWeightRow {
  TandemCudaLayerNormBackward n;
  const RowMoments* rows;
  TANDEM_HD float operator()(float sum, int64_t row, int column) const {
    const int64_t at = row * n.width + column;
    return fmaf(n.grad_out[at], rows[row].normed(n.x[at]), sum);
  }
};
struct LayerNormBiasRow {
  TandemCudaLayerNormBackward n;
  TANDEM_HD float operator()(float sum, int64_t row, int column) const {
    return sum + n.grad_out[row * n.width + column];
  }
};
struct LayerNormGradient {
  TandemCudaLayerNormBackward n;
  const RowMoments* rows;
  TANDEM_HD void operator()(int64_t i) const {
    const RowMoments row = rows[i / n.width];
    const float gradient = n.grad_out[i] * n.weight[i % n.width];
    n.grad_x[i] = row.inverse * (gradient - row.gradient - row.normed(n.x[i]) * row.dot);
  }
};
inline size_t layer_norm_backward_workspace(int rows, int width) {
  return static_cast<size_t>(rows) * sizeof(RowMoments) + sum_over_rows_workspace(rows, width);
}
template <typename Execution>
int operate(Execution& execution, const TandemCudaLayerNormBackward& n) {
  if (!n.x || !n.weight || !n.grad_out || !n.grad_x || !n.grad_weight || !n.grad_bias || !n.workspace) {
    return kTandemCudaNull;
  }
  if (n.rows < 0 || n.width < 0) return kTandemCudaSize;
  if (n.workspace_bytes < layer_norm_backward_workspace(n.rows, n.width)) return kTandemCudaWorkspace;
  RowMoments* rows = static_cast<RowMoments*>(n.workspace);
  float* partial = reinterpret_cast<float*>(rows + n.rows);
  return in_order(
      [&] { return start(execution, LayerNormMoments(n, rows), RowLanes::blocks(n.rows)); },
      [&] {
        return sum_over_rows(execution, n.rows, n.width, LayerNormWeightRow{n, rows}, partial, n.grad_weight);
      },
      [&] { return sum_over_rows(execution, n.rows, n.width, LayerNormBiasRow{n}, partial, n.grad_bias); },
      [&] {
        return each_element(execution, static_cast<int64_t>(n.rows) * n.width, LayerNormGradient{n, rows});
      });
}

// The share of the normal distribution below x, and e^(-x^2 / 2): the polynomial of kernels/cpu/encoder_ops.inl.
struct NormalAt {
  float share, bell;
};
TANDEM_HD NormalAt normal_at(float x) {
  const float terms[] = {-0.029125964f, 0.14387269f, -0.25550547f, 0.15893029f, -0.022937778f,
                         0.10543319f,   0.11985238f, 0.1398591f,   0.13962157f};
  const float a = float_of(bits_of(x) & 0x7fffffffu);
  const float t = 1.0f / fmaf(0.35f, a, 1.0f);
  float ratio = 0;
  for (const float term : terms) ratio = fmaf(ratio, t, term);
  const float bell = exponential(-0.5f * (a * a));
  const float tail = ratio * t * bell;
  return {x < 0 ? tail : 1.0f - tail, bell};
}

struct GeluElement {
  TandemCudaGelu g;
  TANDEM_HD void operator()(int64_t i) const { g.x[i] = g.x[i] * normal_at(g.x[i]).share; }
};
// Where the bell is 0, x may be infinite, and its product with 0 would be NaN.
struct GeluBackwardElement {
  TandemCudaGeluBackward g;
  TANDEM_HD void operator()(int64_t i) const {
    const NormalAt normal = normal_at(g.x[i]);
    const float rise = g.x[i] * normal.bell * 0.39894228f;
    g.grad[i] = g.grad[i] * (normal.share + (normal.bell == 0 ? 0.0f : rise));
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaGelu& g) {
  if (!g.x) return kTandemCudaNull;
  if (g.count < 0) return kTandemCudaSize;
  return each_element(execution, g.count, GeluElement{g});
}
template <typename Execution>
int operate(Execution& execution, const TandemCudaGeluBackward& g) {
  if (!g.x || !g.grad) return kTandemCudaNull;
  if (g.count < 0) return kTandemCudaSize;
  return each_element(execution, g.count, GeluBackwardElement{g});
}

// Rows that see all of their sequence, whose positions count from its first row.
struct InSequence {
  using Element = float;
  TandemCudaBidirectionalAttention a;

  TANDEM_HD int heads() const { return a.heads; }
  TANDEM_HD int value_size() const { return a.head_size; }
  TANDEM_HD Sight sight(int64_t row) const {
    const int sequence = sequence_of(row);
    if (sequence == a.sequences) return {0, 0, 0};
    const int begin = sequence == 0 ? 0 : a.ends[sequence - 1];
    return {0, a.ends[sequence] - begin, begin};
  }
  TANDEM_HD const float* query(int64_t row, int head) const { return a.queries + at(row, head); }
  TANDEM_HD const float* key(const Sight& sight, int64_t, int head, int position) const {
    return a.keys + at(sight.begin + position, head);
  }
  TANDEM_HD const float* value(const Sight& sight, int64_t, int head, int position) const {
    return a.values + at(sight.begin + position, head);
  }
  TANDEM_HD int64_t value_step() const { return a.stride; }
  TANDEM_HD void put_log_sum(int64_t, int, float) const {}

 private:
  TANDEM_HD int64_t at(int64_t row, int head) const {
    return row * a.stride + static_cast<int64_t>(head) * a.head_size;
  }
  // The first whose end lies behind the row.
  TANDEM_HD int sequence_of(int64_t row) const {
    int begin = 0, end = a.sequences;
    while (begin < end) {
      const int middle = (begin + end) / 2;
      if (a.ends[middle] <= row) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaBidirectionalAttention& a) {
  if (!a.queries || !a.keys || !a.values || !a.out || (a.sequences > 0 && !a.ends)) return kTandemCudaNull;
  if (a.rows < 0 || a.sequences < 0) return kTandemCudaSize;
  if (a.heads <= 0 || a.head_size < 1 || a.head_size > 256) return kTandemCudaShape;
  const int64_t width = static_cast<int64_t>(a.heads) * a.head_size;
  if (a.stride < width || a.out_stride < width) return kTandemCudaStride;
  const AttentionKernel<InSequence> kernel{{a}};
  return start(execution, kernel, kernel.blocks(a.rows));
}

}  // namespace tandem::kernels::cuda
