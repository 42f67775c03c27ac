// The row-wise operations: embedding, RMS norm, RoPE, SwiGLU, addition. Formulas and order of additions are those of
// kernels/transformer_ops.h: sums over a row run in 16 lanes, here 16 threads, and end in the fixed tree.
#pragma once

#include "kernels/cuda/execution.cuh"

namespace tandem::kernels::cuda {

// One element of a row of the table; NaN for an id outside it.
struct EmbedElement {
  TandemCudaEmbed e;
  TANDEM_HD void operator()(int64_t i) const {
    const int32_t id = e.ids[i / e.width];
    const bool there = id >= 0 && id < e.vocabulary;
    e.out[i] = there ? e.table[static_cast<int64_t>(id) * e.width + i % e.width] : to_bf16_bits(not_a_number());
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaEmbed& e) {
  if (!e.table || !e.ids || !e.out) return kTandemCudaNull;
  if (e.rows < 0 || e.width < 0 || e.vocabulary < 0) return kTandemCudaSize;
  return each_element(execution, static_cast<int64_t>(e.rows) * e.width, EmbedElement{e});
}

// One column for all rows in order: two rows may be the same token.
struct EmbedBackwardColumn {
  TandemCudaEmbedBackward e;
  TANDEM_HD void operator()(int64_t column) const {
    for (int64_t row = 0; row < e.rows; ++row) {
      const int32_t id = e.ids[row];
      if (id < 0 || id >= e.vocabulary) continue;
      float& target = e.grad_table[static_cast<int64_t>(id) * e.width + column];
      target = target + from_bf16(e.grad_out[row * e.width + column]);
    }
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaEmbedBackward& e) {
  if (!e.grad_out || !e.ids || !e.grad_table) return kTandemCudaNull;
  if (e.rows < 0 || e.width < 0 || e.vocabulary < 0) return kTandemCudaSize;
  return each_element(execution, e.width, EmbedBackwardColumn{e});
}

// A block takes eight rows, each with 16 threads: a lane's part of a sum first, then all threads form the same tree.
struct RowLanes {
  static constexpr int kThreads = 128;
  static constexpr int kRows = kThreads / kLanes;
  struct Shared {
    float lanes[kRows][kLanes];
  };
  TANDEM_HD static int lane_of(int thread) { return thread % kLanes; }
  TANDEM_HD static int64_t row_of(int64_t block, int thread) { return block * kRows + thread / kLanes; }
  TANDEM_HD static int64_t blocks(int64_t rows) { return pieces(rows, kRows); }

  // sum over i of first(i) * second(i), fused, of this thread's lane.
  template <typename First, typename Second>
  TANDEM_HD static void put(int thread, int width, Shared& shared, const First& first, const Second& second) {
    float sum = 0;
    for (int i = lane_of(thread); i < width; i += kLanes) sum = fmaf(first(i), second(i), sum);
    shared.lanes[thread / kLanes][lane_of(thread)] = sum;
  }
  TANDEM_HD static float total(int thread, const Shared& shared) {
    float lanes[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = shared.lanes[thread / kLanes][lane];
    return sum_of_lanes(lanes);
  }
};

TANDEM_HD float inverse_rms(float squares, int width, float epsilon) {
  return 1.0f / sqrtf(squares / static_cast<float>(width) + epsilon);
}

struct RmsNormKernel : RowLanes {
  using Private = Nothing;
  TandemCudaRmsNorm n;

  TANDEM_HD explicit RmsNormKernel(const TandemCudaRmsNorm& arguments) : n(arguments) {}
  TANDEM_HD bool run(int64_t block, int phase, int thread, Shared& shared, Private&) const {
    const int64_t row = row_of(block, thread);
    const uint16_t* x = n.x + row * n.width;
    if (phase == 0) {
      const auto value = [&](int i) { return from_bf16(x[i]); };
      if (row < n.rows) put(thread, n.width, shared, value, value);
      return true;
    }
    if (row >= n.rows) return false;
    const float inverse = inverse_rms(total(thread, shared), n.width, n.epsilon);
    for (int i = lane_of(thread); i < n.width; i += kLanes) {
      const float normed = from_bf16(to_bf16_bits(from_bf16(x[i]) * inverse));
      n.out[row * n.width + i] = to_bf16_bits(normed * from_bf16(n.weight[i]));
    }
    return false;
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaRmsNorm& n) {
  if (!n.x || !n.weight || !n.out) return kTandemCudaNull;
  if (n.rows < 0 || n.width < 0) return kTandemCudaSize;
  return start(execution, RmsNormKernel(n), RowLanes::blocks(n.rows));
}

// grad_x = inverse * (w g - x slope), slope = inverse^2 * mean(w g x): first both numbers of each row, then the
// gradient of the weight by pieces of 64 rows, joined in order, and last grad_x, which may lie on grad_out.
constexpr int kNormPiece = 64;
struct RowSlope {
  float inverse, slope;
};

struct RmsNormSlopes : RowLanes {
  struct Private {
    float inverse;
  };
  TandemCudaRmsNormBackward n;
  RowSlope* slopes;

  TANDEM_HD RmsNormSlopes(const TandemCudaRmsNormBackward& arguments, RowSlope* out) : n(arguments), slopes(out) {}
  TANDEM_HD bool run(int64_t block, int phase, int thread, Shared& shared, Private& own) const {
    const int64_t row = row_of(block, thread);
    const bool there = row < n.rows;
    const uint16_t* x = n.x + row * n.width;
    const uint16_t* grad = n.grad_out + row * n.width;
    const auto value = [&](int i) { return from_bf16(x[i]); };
    switch (phase) {
      case 0:
        if (there) put(thread, n.width, shared, value, value);
        return true;
      case 1:
        if (there) own.inverse = inverse_rms(total(thread, shared), n.width, n.epsilon);
        return true;
      case 2:
        if (there) {
          put(
              thread, n.width, shared, [&](int i) { return from_bf16(n.weight[i]) * from_bf16(grad[i]); }, value);
        }
        return true;
      default:
        if (there && lane_of(thread) == 0) {
          slopes[row] = {own.inverse, total(thread, shared) / static_cast<float>(n.width) * own.inverse * own.inverse};
        }
        return false;
    }
  }
};

struct RmsNormWeightPiece {
  TandemCudaRmsNormBackward n;
  const RowSlope* slopes;
  float* partial;  // [pieces][width]
  TANDEM_HD void operator()(int64_t i) const {
    const int64_t first = i / n.width * kNormPiece, column = i % n.width;
    const int64_t end = first + kNormPiece < n.rows ? first + kNormPiece : n.rows;
    float sum = 0;
    for (int64_t row = first; row < end; ++row) {
      const int64_t at = row * n.width + column;
      sum = fmaf(from_bf16(n.grad_out[at]), from_bf16(n.x[at]) * slopes[row].inverse, sum);
    }
    partial[i] = sum;
  }
};

struct RmsNormWeightColumn {
  TandemCudaRmsNormBackward n;
  const float* partial;
  TANDEM_HD void operator()(int64_t column) const {
    float sum = n.grad_weight[column];
    for (int64_t piece = 0; piece < pieces(n.rows, kNormPiece); ++piece) sum = sum + partial[piece * n.width + column];
    n.grad_weight[column] = sum;
  }
};

struct RmsNormGradient {
  TandemCudaRmsNormBackward n;
  const RowSlope* slopes;
  TANDEM_HD void operator()(int64_t i) const {
    const RowSlope row = slopes[i / n.width];
    const float old = n.accumulate ? from_bf16(n.grad_x[i]) : 0.0f;
    const float inner = from_bf16(n.weight[i % n.width]) * from_bf16(n.grad_out[i]) - from_bf16(n.x[i]) * row.slope;
    n.grad_x[i] = to_bf16_bits(row.inverse * inner + old);
  }
};

inline size_t rms_norm_backward_workspace(int rows, int width) {
  return static_cast<size_t>(rows) * sizeof(RowSlope) +
         static_cast<size_t>(pieces(rows, kNormPiece)) * width * sizeof(float);
}
template <typename Execution>
int operate(Execution& execution, const TandemCudaRmsNormBackward& n) {
  if (!n.x || !n.weight || !n.grad_out || !n.grad_x || !n.grad_weight || !n.workspace) return kTandemCudaNull;
  if (n.rows < 0 || n.width < 0) return kTandemCudaSize;
  if (n.workspace_bytes < rms_norm_backward_workspace(n.rows, n.width)) return kTandemCudaWorkspace;
  const int64_t elements = static_cast<int64_t>(n.rows) * n.width;
  RowSlope* slopes = static_cast<RowSlope*>(n.workspace);
  float* partial = reinterpret_cast<float*>(slopes + n.rows);
  return in_order(
      [&] { return start(execution, RmsNormSlopes(n, slopes), RowLanes::blocks(n.rows)); },
      [&] {
        return each_element(execution, pieces(n.rows, kNormPiece) * n.width, RmsNormWeightPiece{n, slopes, partial});
      },
      [&] {
        return each_element(execution, n.width, RmsNormWeightColumn{n, partial});
      },
      [&] {
        return each_element(execution, elements, RmsNormGradient{n, slopes});
      });
}

// One pair of one head; NaN at a position outside the table.
struct RopePair {
  TandemCudaRope r;
  TANDEM_HD void operator()(int64_t index) const {
    const int half = r.head_size / 2;
    const int i = static_cast<int>(index % half);
    const int head = static_cast<int>(index / half % r.heads);
    const int64_t row = index / half / r.heads;
    uint16_t* first = r.x + row * r.stride + static_cast<int64_t>(head) * r.head_size + i;
    const int32_t position = r.positions[row];
    float cosine = not_a_number(), sine = cosine;
    if (position >= 0 && position < r.table_positions) {
      const float* turn = r.table + static_cast<int64_t>(position) * r.head_size + i * 2;
      cosine = turn[0];
      sine = r.inverse ? -turn[1] : turn[1];
    }
    const float a = from_bf16(first[0]), b = from_bf16(first[half]);
    first[0] = to_bf16_bits(a * cosine - b * sine);
    first[half] = to_bf16_bits(b * cosine + a * sine);
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaRope& r) {
  if (!r.x || !r.positions || !r.table) return kTandemCudaNull;
  if (r.rows < 0 || r.heads < 0) return kTandemCudaSize;
  if (r.head_size <= 0 || r.head_size % 2 != 0) return kTandemCudaShape;
  if (r.stride < static_cast<int64_t>(r.heads) * r.head_size) return kTandemCudaStride;
  return each_element(execution, static_cast<int64_t>(r.rows) * r.heads * (r.head_size / 2), RopePair{r});
}

struct SwigluElement {
  TandemCudaSwiglu s;
  TANDEM_HD void operator()(int64_t i) const {
    const int64_t at = i / s.width * 2 * s.width + i % s.width;
    const float gate = from_bf16(s.gate_up[at]), up = from_bf16(s.gate_up[at + s.width]);
    s.out[i] = to_bf16_bits(gate / (1.0f + exponential(-gate)) * up);
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaSwiglu& s) {
  if (!s.gate_up || !s.out) return kTandemCudaNull;
  if (s.rows < 0 || s.width < 0) return kTandemCudaSize;
  return each_element(execution, static_cast<int64_t>(s.rows) * s.width, SwigluElement{s});
}

// d(gate) = grad * up * s (1 + gate (1 - s)),  d(up) = grad * gate * s,  s = sigmoid(gate).
struct SwigluBackwardElement {
  TandemCudaSwigluBackward s;
  TANDEM_HD void operator()(int64_t i) const {
    const int64_t at = i / s.width * 2 * s.width + i % s.width;
    const float gate = from_bf16(s.gate_up[at]), up = from_bf16(s.gate_up[at + s.width]);
    const float grad = from_bf16(s.grad_out[i]);
    const float sigmoid = 1.0f / (1.0f + exponential(-gate));
    s.grad_gate_up[at] = to_bf16_bits(grad * up * sigmoid * (1.0f + gate * (1.0f - sigmoid)));
    s.grad_gate_up[at + s.width] = to_bf16_bits(grad * gate * sigmoid);
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaSwigluBackward& s) {
  if (!s.gate_up || !s.grad_out || !s.grad_gate_up) return kTandemCudaNull;
  if (s.rows < 0 || s.width < 0) return kTandemCudaSize;
  return each_element(execution, static_cast<int64_t>(s.rows) * s.width, SwigluBackwardElement{s});
}

struct AddElement {
  TandemCudaAdd a;
  TANDEM_HD void operator()(int64_t i) const { a.x[i] = to_bf16_bits(from_bf16(a.x[i]) + from_bf16(a.y[i])); }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaAdd& a) {
  if (!a.x || !a.y) return kTandemCudaNull;
  if (a.count < 0) return kTandemCudaSize;
  return each_element(execution, a.count, AddElement{a});
}

}  // namespace tandem::kernels::cuda
