// Muon out of the products of gemm.cuh: formulas, sides and roundings of kernels/muon.cpp.
#pragma once

#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/optimizer.cuh"

namespace tandem::kernels::cuda {

// Sides are even: a zero row or column more changes no product of the others and stays zero.
struct MuonWorkspace {
  int shorter, longer;
  double* squares;  // of the update: the sum, then the parts of it
  float* sums;      // of a product, or the update before it is made smaller: [shorter][longer]
  uint16_t *x, *gram;
  size_t squares_bytes, bytes;

  MuonWorkspace(int rows, int columns, void* memory) {
    const auto even = [](int side) { return (static_cast<int64_t>(side) + 1) / 2 * 2; };
    const int64_t s = even(rows < columns ? rows : columns), l = even(rows < columns ? columns : rows);
    shorter = static_cast<int>(s);
    longer = static_cast<int>(l);
    squares_bytes = sum_of_squares_workspace(static_cast<int64_t>(rows) * columns);
    squares = static_cast<double*>(memory);
    const size_t parts = 1 + squares_bytes / sizeof(double), elements = static_cast<size_t>(s) * l;
    sums = reinterpret_cast<float*>(squares + parts);
    x = reinterpret_cast<uint16_t*>(sums + elements);
    gram = x + elements;
    bytes = parts * sizeof(double) + elements * (sizeof(float) + sizeof(uint16_t)) +
            static_cast<size_t>(s) * s * sizeof(uint16_t);
  }
};

// Momentum moves; the update is written as it lies.
struct MuonUpdate {
  TandemCudaMuon m;
  float* updates;
  TANDEM_HD void operator()(int64_t i) const {
    const float rest = 1 - m.beta;
    const float grad = m.grad[i] * m.grad_scale;
    const float momentum = m.beta * m.momentum[i] + rest * grad;
    m.momentum[i] = momentum;
    updates[i] = m.nesterov ? rest * grad + m.beta * momentum : momentum;
  }
};

// Where an element of X, the shorter side first, lies in the matrix; -1 where X is filled up.
TANDEM_HD int64_t in_matrix(const TandemCudaMuon& m, int64_t shorter, int64_t longer) {
  const bool upright = m.rows > m.columns;
  const int64_t row = upright ? longer : shorter, column = upright ? shorter : longer;
  return row < m.rows && column < m.columns ? row * m.columns + column : -1;
}
struct MuonScaled {
  TandemCudaMuon m;
  MuonWorkspace w;
  TANDEM_HD void operator()(int64_t i) const {
    const int64_t at = in_matrix(m, i / w.longer, i % w.longer);
    const double norm = sqrt(*w.squares), least = static_cast<double>(m.epsilon);
    const float inverse = static_cast<float>(1 / (norm < least ? least : norm));
    w.x[i] = at < 0 ? static_cast<uint16_t>(0) : to_bf16_bits(w.sums[at] * inverse);
  }
};

// target = bf16(factor * target + of_sums * sums).
struct MuonMixed {
  uint16_t* target;
  const float* sums;
  float factor, of_sums;
  TANDEM_HD void operator()(int64_t i) const {
    target[i] = to_bf16_bits(factor * from_bf16(target[i]) + of_sums * sums[i]);
  }
};

struct MuonMoved {
  TandemCudaMuon m;
  MuonWorkspace w;
  float keep, step;
  TANDEM_HD void operator()(int64_t i) const {
    const int64_t at = in_matrix(m, i / w.longer, i % w.longer);
    if (at < 0) return;
    const float master = m.master[at] * keep - step * from_bf16(w.x[i]);
    m.master[at] = master;
    m.weight[at] = to_bf16_bits(master);
  }
};

// left [rows][shorter or longer] times the rows, or the columns, of right.
template <typename Execution>
int muon_product(Execution& execution, const MuonWorkspace& w, const uint16_t* left, int k, const uint16_t* right,
                 bool by_columns, int n, uint16_t* out, float* out_float) {
  TandemCudaGemm g{};
  g.a = left;
  g.a_row_stride = k;
  g.a_k_stride = 1;
  g.b = right;
  g.b_row_stride = by_columns ? 1 : k;
  g.b_k_stride = by_columns ? n : 1;
  g.out = out;
  g.out_float = out_float;
  g.out_stride = n;
  g.m = w.shorter;
  g.n = n;
  g.k = k;
  return operate(execution, g);
}

// A = X X^T, B = b A + c A A, X = a X + B X.
template <typename Execution>
int muon_iterate(Execution& execution, const MuonWorkspace& w) {
  constexpr float kA = 3.4445f, kB = -4.775f, kC = 2.0315f;
  const int s = w.shorter, l = w.longer;
  return in_order([&] { return muon_product(execution, w, w.x, l, w.x, false, s, w.gram, nullptr); },
                  [&] { return muon_product(execution, w, w.gram, s, w.gram, false, s, nullptr, w.sums); },
                  [&] {
                    return each_element(execution, static_cast<int64_t>(s) * s, MuonMixed{w.gram, w.sums, kB, kC});
                  },
                  [&] { return muon_product(execution, w, w.gram, s, w.x, true, l, nullptr, w.sums); },
                  [&] {
                    return each_element(execution, static_cast<int64_t>(s) * l, MuonMixed{w.x, w.sums, kA, 1});
                  });
}

inline size_t muon_workspace(int rows, int columns) { return MuonWorkspace(rows, columns, nullptr).bytes; }

template <typename Execution>
int operate(Execution& execution, const TandemCudaMuon& m) {
  if (!m.grad || !m.master || !m.momentum || !m.weight || !m.workspace) return kTandemCudaNull;
  if (m.rows < 1 || m.columns < 1 || m.rows == INT32_MAX || m.columns == INT32_MAX) return kTandemCudaSize;
  if (m.iterations < 1 || m.iterations > 20) return kTandemCudaShape;
  const MuonWorkspace w(m.rows, m.columns, m.workspace);
  if (m.workspace_bytes < w.bytes) return kTandemCudaWorkspace;
  const int64_t count = static_cast<int64_t>(m.rows) * m.columns, padded = static_cast<int64_t>(w.shorter) * w.longer;
  const double rows = m.rows, columns = m.columns, ratio = rows / columns;
  const double scale =
      m.like_adamw ? 0.2 * std::sqrt(rows > columns ? rows : columns) : std::sqrt(ratio > 1 ? ratio : 1);
  const float keep = 1 - m.learning_rate * m.weight_decay, step = m.learning_rate * static_cast<float>(scale);
  const TandemCudaSumOfSquares squares{w.sums, count, w.squares, w.squares + 1, w.squares_bytes};
  const auto iterate = [&] {
    for (int i = 0; i < m.iterations; ++i) {
      if (const int code = muon_iterate(execution, w)) return code;
    }
    return static_cast<int>(kTandemCudaOk);
  };
  return in_order(
      [&] {
        return each_element(execution, count, MuonUpdate{m, w.sums});
      },
      [&] { return operate(execution, squares); },
      [&] {
        return each_element(execution, padded, MuonScaled{m, w});
      },
      iterate,
      [&] {
        return each_element(execution, padded, MuonMoved{m, w, keep, step});
      });
}

}  // namespace tandem::kernels::cuda
