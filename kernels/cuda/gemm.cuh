// Products: a block of 256 threads computes 64 x 64 elements, a thread 4 x 4 of them, each a chain over k from first to
// last. Tiles of 16 of k pass through shared memory; they change when an operand is read, never the order of a chain.
#pragma once

#include "kernels/cuda/execution.cuh"

namespace tandem::kernels::cuda {

// Element (row, k) of one side of a product.
struct Operand {
  const uint16_t* start;
  int64_t row_stride, k_stride;
  int rows;
};

// 64 x 64 elements of a product, for kernels that go on with them.
struct ProductTile {
  static constexpr int kThreads = 256;
  static constexpr int kSide = 64, kStep = 16, kOwn = 4;
  struct Shared {
    float a[kStep][kSide], b[kStep][kSide];
  };
  struct Private {
    float sums[kOwn][kOwn];
  };
  Operand a, b;
  int k;

  TANDEM_HD int row_blocks() const { return static_cast<int>(pieces(a.rows, kSide)); }
  TANDEM_HD int column_blocks() const { return static_cast<int>(pieces(b.rows, kSide)); }
  TANDEM_HD int64_t blocks() const { return static_cast<int64_t>(row_blocks()) * column_blocks(); }
  // Where the elements sums[i][j] of a thread lie in the tile.
  TANDEM_HD static int row_of(int thread, int i) { return thread / kStep * kOwn + i; }
  TANDEM_HD static int column_of(int thread, int j) { return thread % kStep + j * kStep; }

  TANDEM_HD int phases() const { return 2 * static_cast<int>(pieces(k, kStep)); }
  TANDEM_HD void run(int first_row, int first_column, int phase, int thread, Shared& shared, Private& own) const {
    const int first_k = phase / 2 * kStep;
    if (phase % 2 == 0) {
      load(a, first_row, first_k, thread, shared.a);
      load(b, first_column, first_k, thread, shared.b);
      if (phase == 0) clear(own);
      return;
    }
    const int steps = k - first_k < kStep ? k - first_k : kStep;
    for (int step = 0; step < steps; ++step) {
      for (int i = 0; i < kOwn; ++i) {
        for (int j = 0; j < kOwn; ++j) {
          own.sums[i][j] =
              fmaf(shared.a[step][row_of(thread, i)], shared.b[step][column_of(thread, j)], own.sums[i][j]);
        }
      }
    }
  }
  TANDEM_HD static void clear(Private& own) {
    for (int i = 0; i < kOwn; ++i) {
      for (int j = 0; j < kOwn; ++j) own.sums[i][j] = 0;
    }
  }

 private:
  // Neighbouring threads read neighbouring elements, along whichever side lies densely.
  TANDEM_HD void load(const Operand& side, int first, int first_k, int thread, float (&tile)[kStep][kSide]) const {
    for (int element = thread; element < kSide * kStep; element += kThreads) {
      const bool dense_k = side.k_stride == 1;
      const int row = dense_k ? element / kStep : element % kSide;
      const int step = dense_k ? element % kStep : element / kSide;
      const bool there = first + row < side.rows && first_k + step < k;
      tile[step][row] =
          there ? from_bf16(side.start[(first + row) * side.row_stride + (first_k + step) * side.k_stride]) : 0.0f;
    }
  }
};

struct GemmKernel {
  static constexpr int kThreads = ProductTile::kThreads;
  using Shared = ProductTile::Shared;
  using Private = ProductTile::Private;
  TandemCudaGemm g;

  TANDEM_HD ProductTile tile() const {
    return {{g.a, g.a_row_stride, g.a_k_stride, g.m}, {g.b, g.b_row_stride, g.b_k_stride, g.n}, g.k};
  }
  TANDEM_HD bool run(int64_t block, int phase, int thread, Shared& shared, Private& own) const {
    const ProductTile product = tile();
    const int first_row = static_cast<int>(block / product.column_blocks()) * ProductTile::kSide;
    const int first_column = static_cast<int>(block % product.column_blocks()) * ProductTile::kSide;
    if (phase < product.phases()) {
      product.run(first_row, first_column, phase, thread, shared, own);
      return true;
    }
    if (g.k == 0) ProductTile::clear(own);
    for (int i = 0; i < ProductTile::kOwn; ++i) {
      for (int j = 0; j < ProductTile::kOwn; ++j) {
        const int row = first_row + ProductTile::row_of(thread, i);
        const int column = first_column + ProductTile::column_of(thread, j);
        if (row < g.m && column < g.n) finish(own.sums[i][j], row * g.out_stride + column);
      }
    }
    return false;
  }

 private:
  TANDEM_HD void finish(float value, int64_t at) const {
    if (g.residual) value = value + from_bf16(g.residual[at]);
    if (g.accumulate) value = g.out_float[at] + value;
    if (g.out_bf16) {
      g.out_bf16[at] = to_bf16_bits(value);
    } else {
      g.out_float[at] = value;
    }
  }
};

inline int check(const TandemCudaGemm& g) {
  if (g.m < 0 || g.n < 0 || g.k < 0) return kTandemCudaSize;
  if (!g.a || !g.b || (!g.out_bf16 && !g.out_float)) return kTandemCudaNull;
  if ((g.out_bf16 && g.out_float) || (g.residual && !g.out_bf16) || (g.accumulate && !g.out_float)) {
    return kTandemCudaShape;
  }
  const auto dense = [](int64_t one, int64_t other, int length) { return one == 1 && other >= length; };
  if (!dense(g.a_k_stride, g.a_row_stride, g.k) && !dense(g.a_row_stride, g.a_k_stride, g.m)) return kTandemCudaStride;
  if (!dense(g.b_k_stride, g.b_row_stride, g.k) && !dense(g.b_row_stride, g.b_k_stride, g.n)) return kTandemCudaStride;
  return g.out_stride >= g.n ? kTandemCudaOk : kTandemCudaStride;
}

template <typename Execution>
int operate(Execution& execution, const TandemCudaGemm& g) {
  if (const int code = check(g)) return code;
  const GemmKernel kernel{g};
  return start(execution, kernel, kernel.tile().blocks());
}

}  // namespace tandem::kernels::cuda
