// Products: a block of 256 threads computes 64 x 64 elements, a thread 4 x 4 of them, each a chain over k from first to
// last. Tiles of 16 of k pass through shared memory; they change when an operand is read, never the order of a chain.
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

template <typename Arguments>
struct GemmKernel {
  static constexpr int kThreads = ProductTile::kThreads;
  using Shared = ProductTile::Shared;
  using Private = ProductTile::Private;
  Arguments g;

  TANDEM_HD ProductTile tile() const {
    return {g.a ? operand(g.a, g.a_row_stride, g.a_k_stride, g.m) : operand(g.a_codes, g.k, g.m),
            g.b ? operand(g.b, g.b_row_stride, g.b_k_stride, g.n) : operand(g.b_codes, g.k, g.n), g.k};
  }
  TANDEM_HD bool run(int64_t block, int phase, int thread, Shared& shared, Private& own) const {
    const ProductTile product = tile();
    const int first_row = static_cast<int>(block / product.column_blocks()) * ProductTile::kSide;
    const int first_column = static_cast<int>(block % product.column_blocks()) * ProductTile::kSide;
    if (phase < product.phases()) {
      product.run(first_row, first_column, phase, thread, shared, own);
      return true;
    }
    product.finish(first_row, first_column, thread, own,
                   [&](int row, int column, float sum) { put(sum, row, column); });
    return false;
  }

  TANDEM_HD void put(float value, int64_t row, int column) const {
    const int64_t at = row * g.out_stride + column;
    if (g.bias) value = value + value_of(g.bias[column]);
    if (g.residual) value = value + value_of(g.residual[at]);
    if (g.accumulate) value = g.out_float[at] + value;
    if (g.out) {
      g.out[at] = stored<std::remove_reference_t<decltype(*g.out)>>(value);
    } else {
      g.out_float[at] = value;
    }
  }
};

// Products of a few rows, as those of decoding: a block computes 32 columns of all rows, and brings in many of k at
// once, so that few waits for memory stand in a row. Both sides lie densely along k. The chains are those of
// GemmKernel.
template <typename Arguments, int kRows, int kStep>
struct FewRowsKernel {
  static constexpr int kThreads = 256;
  static constexpr int kColumns = 32, kGroups = kThreads / kColumns;
  static constexpr int kOwn = (kRows + kGroups - 1) / kGroups;  // rows of a thread
  static constexpr int kStride = kStep + 4;  // so that threads that read neighbouring columns use all banks
  struct Shared {
    float a[kRows][kStride], b[kColumns][kStride];
  };
  struct Private {
    float sums[kOwn];
  };
  GemmKernel<Arguments> product;

  TANDEM_HD int64_t blocks() const { return pieces(product.g.n, kColumns); }
  TANDEM_HD bool run(int64_t block, int phase, int thread, Shared& shared, Private& own) const {
    const auto& g = product.g;
    const int first_column = static_cast<int>(block) * kColumns, first_k = phase / 2 * kStep;
    const ProductTile sides = product.tile();
    if (phase == 0) {
      for (int i = 0; i < kOwn; ++i) own.sums[i] = 0;
    }
    if (phase % 2 == 0 && first_k < g.k) {
      bring_in<kColumns>(sides.b, first_column, first_k, thread, shared.b);
      bring_in<kRows>(sides.a, 0, first_k, thread, shared.a);
      return true;
    }
    const int column = thread % kColumns, first_row = thread / kColumns;
    if (phase % 2 == 1) {
      const int steps = g.k - first_k < kStep ? g.k - first_k : kStep;
      if (first_row >= g.m) return true;
      TANDEM_UNROLL_8
      for (int step = 0; step < steps; ++step) {
        const float b = shared.b[column][step];
        for (int i = 0; i < kOwn; ++i) {
          const int row = first_row + i * kGroups;
          if (row < g.m) own.sums[i] = fmaf(shared.a[row][step], b, own.sums[i]);
        }
      }
      return true;
    }
    for (int i = 0; i < kOwn; ++i) {
      const int row = first_row + i * kGroups;
      if (row < g.m && first_column + column < g.n) product.put(own.sums[i], row, first_column + column);
    }
    return false;
  }

 private:
  // All reads first, so that none waits for another.
  template <int kLines>
  TANDEM_HD void bring_in(const Operand& side, int first, int first_k, int thread,
                          float (&tile)[kLines][kStride]) const {
    const int k = product.g.k;
    if (by_fours(side, k)) {
      constexpr int kFours = kStep / 4, kReads = kLines * kFours / kThreads;
      static_assert(kLines * kFours % kThreads == 0);
      float values[kReads][4];
      for (int r = 0; r < kReads; ++r) {
        const int place = thread + r * kThreads, line = place / kFours, step = place % kFours * 4;
        for (int i = 0; i < 4; ++i) values[r][i] = 0;
        if (first + line < side.rows && first_k + step < k)
          four(side.bf16 + (first + line) * side.row_stride + first_k + step, values[r]);
      }
      for (int r = 0; r < kReads; ++r) {
        const int place = thread + r * kThreads, line = place / kFours, step = place % kFours * 4;
        for (int i = 0; i < 4; ++i) tile[line][step + i] = values[r][i];
      }
      return;
    }
    for (int element = thread; element < kLines * kStep; element += kThreads) {
      const int line = element / kStep, step = element % kStep;
      const bool there = first + line < side.rows && first_k + step < k;
      tile[line][step] = there ? side.at(first + line, first_k + step) : 0.0f;
    }
  }
};

// Of the two strides of a side one is 1, the other at least what it strides over.
inline bool lies(int64_t row_stride, int64_t k_stride, int rows, int k) {
  return (k_stride == 1 && row_stride >= k) || (row_stride == 1 && k_stride >= rows);
}
inline int check(const TandemCudaCodes& c) {
  if (!c.codes || !c.scales) return kTandemCudaNull;
  const bool known =
      (c.block == kFp8Block || c.block == kMxfp8Block) && (c.block_rows == 1 || c.block_rows == kFp8Block);
  return known ? kTandemCudaOk : kTandemCudaShape;
}
// A side that is given as elements or, of bf16, as codes.
template <typename T>
int check_side(const T* elements, int64_t row_stride, int64_t k_stride, const TandemCudaCodes& codes, int rows, int k) {
  if (!codes.codes && !codes.scales) {
    if (!elements) return kTandemCudaNull;
    return lies(row_stride, k_stride, rows, k) ? kTandemCudaOk : kTandemCudaStride;
  }
  return elements || sizeof(T) == sizeof(float) ? kTandemCudaShape : check(codes);
}

template <typename Arguments>
int check_gemm(const Arguments& g) {
  if (g.m < 0 || g.n < 0 || g.k < 0) return kTandemCudaSize;
  if (!g.out && !g.out_float) return kTandemCudaNull;
  if ((g.out && g.out_float) || ((g.residual || g.bias) && !g.out) || (g.accumulate && !g.out_float)) {
    return kTandemCudaShape;
  }
  if (const int code = check_side(g.a, g.a_row_stride, g.a_k_stride, g.a_codes, g.m, g.k)) return code;
  if (const int code = check_side(g.b, g.b_row_stride, g.b_k_stride, g.b_codes, g.n, g.k)) return code;
  return g.out_stride >= g.n ? kTandemCudaOk : kTandemCudaStride;
}

template <typename Execution, OneOf<TandemCudaGemm, TandemCudaGemmFloat> Arguments>
int operate(Execution& execution, const Arguments& g) {
  if (const int code = check_gemm(g)) return code;
  const GemmKernel<Arguments> kernel{g};
  const ProductTile tile = kernel.tile();
  if (tile.a.dense_k() && tile.b.dense_k() && g.m <= 8) {
    const FewRowsKernel<Arguments, 8, 256> few{kernel};
    return start(execution, few, few.blocks());
  }
  if (tile.a.dense_k() && tile.b.dense_k() && g.m <= 64) {
    const FewRowsKernel<Arguments, 64, 64> few{kernel};
    return start(execution, few, few.blocks());
  }
  return start(execution, kernel, tile.blocks());
}

// The tiles of one product after those of another.
template <typename Arguments>
struct BatchedGemmKernel {
  static constexpr int kThreads = ProductTile::kThreads;
  using Shared = ProductTile::Shared;
  using Private = ProductTile::Private;
  Arguments g;

  TANDEM_HD ProductTile tile(int64_t group) const {
    return {operand(g.a + group * g.a_group, g.a_stride, 1, g.m),
            operand(g.b + group * g.b_group, g.b_row_stride, g.b_k_stride, g.n), g.k};
  }
  TANDEM_HD bool run(int64_t block, int phase, int thread, Shared& shared, Private& own) const {
    const int64_t group = block / tile(0).blocks(), in_group = block % tile(0).blocks();
    const ProductTile product = tile(group);
    const int first_row = static_cast<int>(in_group / product.column_blocks()) * ProductTile::kSide;
    const int first_column = static_cast<int>(in_group % product.column_blocks()) * ProductTile::kSide;
    if (phase < product.phases()) {
      product.run(first_row, first_column, phase, thread, shared, own);
      return true;
    }
    auto* out = g.out + group * g.out_group;
    product.finish(first_row, first_column, thread, own, [&](int row, int column, float sum) {
      out[row * g.out_stride + column] = stored<std::remove_reference_t<decltype(*out)>>(sum);
    });
    return false;
  }
};
template <typename Execution, OneOf<TandemCudaBatchedGemm, TandemCudaBatchedGemmFloat> Arguments>
int operate(Execution& execution, const Arguments& g) {
  if (!g.a || !g.b || !g.out) return kTandemCudaNull;
  if (g.groups < 0 || g.m < 0 || g.n < 0 || g.k < 0) return kTandemCudaSize;
  if (g.a_stride < g.k || g.out_stride < g.n || !lies(g.b_row_stride, g.b_k_stride, g.n, g.k)) return kTandemCudaStride;
  const BatchedGemmKernel<Arguments> kernel{g};
  const int64_t tiles = kernel.tile(0).blocks();
  if (tiles > kMostBlocks) return kTandemCudaSize;
  return start(execution, kernel, g.groups * tiles);
}

}  // namespace tandem::kernels::cuda
