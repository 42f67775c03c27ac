// Products by tiles: chains of fused multiply-adds (product_tile.cuh), or of bf16 on tensor cores (tensor_tile.cuh).
#pragma once

#include "kernels/cuda/tensor_tile.cuh"

namespace tandem::kernels::cuda {

template <typename Arguments, typename Tile = ProductTile>
struct GemmKernel {
  using Workers = typename Tile::Workers;
  using Shared = typename Tile::Shared;
  using Private = typename Tile::Private;
  Arguments g;

  TANDEM_HD Tile tile() const {
    return {g.a ? operand(g.a, g.a_row_stride, g.a_k_stride, g.m) : operand(g.a_codes, g.k, g.m),
            g.b ? operand(g.b, g.b_row_stride, g.b_k_stride, g.n) : operand(g.b_codes, g.k, g.n), g.k};
  }
  TANDEM_HD bool run(int64_t block, int phase, int worker, Shared& shared, Private& own) const {
    const Tile product = tile();
    const int first_row = static_cast<int>(block / product.column_blocks()) * Tile::kRows;
    const int first_column = static_cast<int>(block % product.column_blocks()) * Tile::kColumns;
    if (phase < product.phases()) {
      product.run(first_row, first_column, phase, worker, shared, own);
      return true;
    }
    product.finish(first_row, first_column, worker, own,
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

// One of the two strides of a side is 1, the other at least what it strides over.
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

// The tile of a tensor product for two sides as they lie: body(tile type), of few rows, of some, of many.
template <int Rows, int Columns, int Down, int Across, int Stages = 3, typename Body>
int with_tensor_tile(bool a_along_k, bool b_along_k, const Body& body) {
  if (b_along_k) return body(std::type_identity<TensorTile<Rows, Columns, Down, Across, true, true, Stages>>());
  if (a_along_k) return body(std::type_identity<TensorTile<Rows, Columns, Down, Across, true, false, Stages>>());
  return body(std::type_identity<TensorTile<Rows, Columns, Down, Across, false, false, Stages>>());
}
constexpr int kFewRows = 16, kSomeRows = 64, kBusyTiles = 200;  // tiles of 128 x 128 from which on a GPU is busy

template <typename Body>
int with_tensor_tile(bool a_along_k, bool b_along_k, int64_t rows, int64_t columns, const Body& body) {
  if (rows <= kFewRows && a_along_k && b_along_k)
    return body(std::type_identity<TensorTile<kFewRows, 64, 1, 4, true, true, 5>>());
  if (rows <= kSomeRows || pieces(rows, 128) * pieces(columns, 128) < kBusyTiles)
    return with_tensor_tile<kSomeRows, 64, 2, 2>(a_along_k, b_along_k, body);
  return with_tensor_tile<128, 128, 2, 4>(a_along_k, b_along_k, body);
}

// Whether wgmma, whose tiles are of 128 x 256, is quicker: where they keep a GPU busy.
inline bool fits_wgmma(const TandemCudaGemm& g, const ProductTile& sides) {
  constexpr int64_t kBusy = 100;
  return g.k > 0 && pieces(g.m, 128) * pieces(g.n, 256) >= kBusy && sides.a.dense_k() && sides.b.dense_k() &&
         by_pieces(sides.a, true) && by_pieces(sides.b, true);
}

template <typename Execution, OneOf<TandemCudaGemm, TandemCudaGemmFloat> Arguments>
int operate(Execution& execution, const Arguments& g) {
  if (const int code = check_gemm(g)) return code;
  if constexpr (std::is_same_v<Arguments, TandemCudaGemm>) {
    if (execution.tensor()) {
      const ProductTile sides = GemmKernel<Arguments>{g}.tile();
      if constexpr (requires { execution.run_tensor_gemm(g); }) {
        if (fits_wgmma(g, sides) && execution.has_wgmma()) return execution.run_tensor_gemm(g);
      }
      return with_tensor_tile(sides.a.dense_k(), sides.b.dense_k(), g.m, g.n,
                              [&]<typename Tile>(std::type_identity<Tile>) {
                                const GemmKernel<Arguments, Tile> kernel{g};
                                return start(execution, kernel, kernel.tile().blocks());
                              });
    }
  }
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
template <typename Arguments, typename Tile = ProductTile>
struct BatchedGemmKernel {
  using Workers = typename Tile::Workers;
  using Shared = typename Tile::Shared;
  using Private = typename Tile::Private;
  Arguments g;

  TANDEM_HD Tile tile(int64_t group) const {
    return {operand(g.a + group * g.a_group, g.a_stride, 1, g.m),
            operand(g.b + group * g.b_group, g.b_row_stride, g.b_k_stride, g.n), g.k};
  }
  TANDEM_HD bool run(int64_t block, int phase, int worker, Shared& shared, Private& own) const {
    const int64_t group = block / tile(0).blocks(), in_group = block % tile(0).blocks();
    const Tile product = tile(group);
    const int first_row = static_cast<int>(in_group / product.column_blocks()) * Tile::kRows;
    const int first_column = static_cast<int>(in_group % product.column_blocks()) * Tile::kColumns;
    if (phase < product.phases()) {
      product.run(first_row, first_column, phase, worker, shared, own);
      return true;
    }
    auto* out = g.out + group * g.out_group;
    product.finish(first_row, first_column, worker, own, [&](int row, int column, float sum) {
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
  if constexpr (std::is_same_v<Arguments, TandemCudaBatchedGemm>) {
    if (execution.tensor()) {
      return with_tensor_tile(true, g.b_k_stride == 1, g.m, g.n * int64_t{g.groups},
                              [&]<typename Tile>(std::type_identity<Tile>) {
                                const BatchedGemmKernel<Arguments, Tile> kernel{g};
                                return start(execution, kernel, g.groups * kernel.tile(0).blocks());
                              });
    }
  }
  const BatchedGemmKernel<Arguments> kernel{g};
  const int64_t tiles = kernel.tile(0).blocks();
  if (tiles > kMostBlocks) return kTandemCudaSize;
  return start(execution, kernel, g.groups * tiles);
}

}  // namespace tandem::kernels::cuda
