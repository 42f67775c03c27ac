// A tile of a product: a block of 256 threads computes 64 x 64 elements, a thread 4 x 4 of them, each a chain over k
// from first to last. Tiles of 16 of k pass through shared memory; they change when an operand is read, never the order
// of a chain.
#pragma once

#include "kernels/cuda/execution.cuh"
#include "kernels/cuda/quantize.cuh"

namespace tandem::kernels::cuda {

// One side of a product, in one of its forms.
struct Operand {
  const uint16_t* bf16 = nullptr;
  const float* fp32 = nullptr;
  TandemCudaCodes coded = {};
  int64_t row_stride = 0, k_stride = 0;
  int rows = 0;

  TANDEM_HD bool dense_k() const { return k_stride == 1; }
  TANDEM_HD float at(int64_t row, int64_t k) const {
    const int64_t index = row * row_stride + k * k_stride;
    if (fp32) return fp32[index];
    if (bf16) return from_bf16(bf16[index]);
    const int64_t block = row / coded.block_rows * pieces(row_stride, coded.block) + k / coded.block;
    return from_bf16(expanded(coded.codes[index], coded.scales[block]));
  }
};
// Four elements of bf16 that lie one behind the other at a multiple of 8 bytes.
TANDEM_HD void four(const uint16_t* start, float (&values)[4]) {
  uint64_t bits;
  memcpy(&bits, __builtin_assume_aligned(start, 8), sizeof bits);
  for (int i = 0; i < 4; ++i) values[i] = from_bf16(static_cast<uint16_t>(bits >> (16 * i)));
}
// Whether a side can be read so, along what lies densely.
TANDEM_HD bool by_fours(const Operand& side, int k) {
  const int64_t stride = side.dense_k() ? side.row_stride : side.k_stride;
  const int dense = side.dense_k() ? k : side.rows;
  return side.bf16 != nullptr && dense % 4 == 0 && stride % 4 == 0 && reinterpret_cast<uintptr_t>(side.bf16) % 8 == 0;
}
TANDEM_HD Operand operand(const uint16_t* start, int64_t row_stride, int64_t k_stride, int rows) {
  return {start, nullptr, {}, row_stride, k_stride, rows};
}
TANDEM_HD Operand operand(const float* start, int64_t row_stride, int64_t k_stride, int rows) {
  return {nullptr, start, {}, row_stride, k_stride, rows};
}
TANDEM_HD Operand operand(const TandemCudaCodes& codes, int k, int rows) {
  return {nullptr, nullptr, codes, k, 1, rows};
}

// 64 x 64 elements of a product, for kernels that go on with them.
struct ProductTile {
  static constexpr int kThreads = 256;
  struct Workers {
    static constexpr int kThreads = 256;
  };
  static constexpr int kSide = 64, kStep = 16, kOwn = 4, kRows = kSide, kColumns = kSide;
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
  // each(row, column, sum) for the elements of this thread that lie inside.
  template <typename Each>
  TANDEM_HD void finish(int first_row, int first_column, int thread, Private& own, const Each& each) const {
    if (k == 0) clear(own);
    for (int i = 0; i < kOwn; ++i) {
      for (int j = 0; j < kOwn; ++j) {
        const int row = first_row + row_of(thread, i), column = first_column + column_of(thread, j);
        if (row < a.rows && column < b.rows) each(row, column, own.sums[i][j]);
      }
    }
  }

 private:
  TANDEM_HD static void clear(Private& own) {
    for (int i = 0; i < kOwn; ++i) {
      for (int j = 0; j < kOwn; ++j) own.sums[i][j] = 0;
    }
  }
  // Neighbouring threads read neighbouring elements, along whichever side lies densely.
  TANDEM_HD void load(const Operand& side, int first, int first_k, int thread, float (&tile)[kStep][kSide]) const {
    if (by_fours(side, k)) {
      static_assert(kSide * kStep == 4 * kThreads);
      const int row = side.dense_k() ? thread / 4 : thread % kStep * 4;
      const int step = side.dense_k() ? thread % 4 * 4 : thread / kStep;
      float values[4] = {0, 0, 0, 0};
      if (first + row < side.rows && first_k + step < k)
        four(side.bf16 + (first + row) * side.row_stride + (first_k + step) * side.k_stride, values);
      for (int i = 0; i < 4; ++i) tile[side.dense_k() ? step + i : step][side.dense_k() ? row : row + i] = values[i];
      return;
    }
    for (int element = thread; element < kSide * kStep; element += kThreads) {
      const int row = side.dense_k() ? element / kStep : element % kSide;
      const int step = side.dense_k() ? element % kStep : element / kSide;
      const bool there = first + row < side.rows && first_k + step < k;
      tile[step][row] = there ? side.at(first + row, first_k + step) : 0.0f;
    }
  }
};

}  // namespace tandem::kernels::cuda
