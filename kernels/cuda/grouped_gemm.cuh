// Products of rows that lie group by group, each group with a weight of its own: the tiles of gemm.cuh. Where groups
// begin is read on the device, so there are as many blocks of threads as the worst case needs, and those for which no
// rows are left do nothing.
#pragma once

#include "kernels/cuda/gemm.cuh"

namespace tandem::kernels::cuda {

// The tile of one group that a block computes.
struct GroupTile {
  int group, first_row, first_column;  // first_row within the group; group -1: there is none
};

template <typename Arguments, typename Tile = ProductTile>
struct GroupedGemmKernel {
  using Workers = typename Tile::Workers;
  using Shared = typename Tile::Shared;
  using Private = typename Tile::Private;
  Arguments g;

  TANDEM_HD int64_t column_tiles() const { return pieces(g.n, Tile::kColumns); }
  // A group that begins in the middle of a tile has one more than its share.
  TANDEM_HD int64_t blocks() const { return (pieces(g.m, Tile::kRows) + g.groups) * column_tiles(); }
  TANDEM_HD GroupTile tile_of(int64_t block) const {
    int64_t tile = block / column_tiles();
    const int column = static_cast<int>(block % column_tiles()) * Tile::kColumns;
    for (int group = 0; group < g.groups; ++group) {
      const int64_t tiles = pieces(g.offsets[group + 1] - g.offsets[group], Tile::kRows);
      if (tile < tiles) return {group, static_cast<int>(tile) * Tile::kRows, column};
      tile -= tiles;
    }
    return {-1, 0, 0};
  }
  TANDEM_HD Operand weight_of(int64_t group) const {
    if (g.b) return operand(g.b + group * g.n * g.k, g.k, 1, g.n);
    TandemCudaCodes codes = g.b_codes;
    codes.codes += group * g.n * g.k;
    codes.scales += group * pieces(g.n, codes.block_rows) * pieces(g.k, codes.block);
    return operand(codes, g.k, g.n);
  }
  TANDEM_HD bool run(int64_t block, int phase, int worker, Shared& shared, Private& own) const {
    const GroupTile tile = tile_of(block);
    if (tile.group < 0) return false;
    const int64_t first = g.offsets[tile.group];
    const int rows = g.offsets[tile.group + 1] - g.offsets[tile.group];
    const Tile product{operand(g.a + first * g.a_stride, g.a_stride, 1, rows), weight_of(tile.group), g.k};
    if (phase < product.phases()) {
      product.run(tile.first_row, tile.first_column, phase, worker, shared, own);
      return true;
    }
    product.finish(tile.first_row, tile.first_column, worker, own, [&](int row, int column, float sum) {
      g.out[(first + row) * g.out_stride + column] = stored<std::remove_reference_t<decltype(*g.out)>>(sum);
    });
    return false;
  }
};
template <typename Execution, OneOf<TandemCudaGroupedGemm, TandemCudaGroupedGemmFloat> Arguments>
int operate(Execution& execution, const Arguments& g) {
  if (!g.a || !g.offsets || !g.out) return kTandemCudaNull;
  if (g.groups < 0 || g.m < 0 || g.n < 0 || g.k < 0) return kTandemCudaSize;
  if (const int code = check_side(g.b, g.k, 1, g.b_codes, g.n, g.k)) return code;
  if (g.a_stride < g.k || g.out_stride < g.n) return kTandemCudaStride;
  if constexpr (std::is_same_v<Arguments, TandemCudaGroupedGemm>) {
    if (execution.tensor()) {
      // A tile holds few rows of most groups.
      const auto run = [&]<typename Tile>(std::type_identity<Tile>) {
        const GroupedGemmKernel<Arguments, Tile> kernel{g};
        return start(execution, kernel, kernel.blocks());
      };
      if (g.m <= int64_t{g.groups} * kFewRows)
        return run(std::type_identity<TensorTile<kFewRows, 64, 1, 4, true, true, 5>>());
      return run(std::type_identity<TensorTile<kSomeRows, 64, 2, 2>>());
    }
  }
  const GroupedGemmKernel<Arguments> kernel{g};
  return start(execution, kernel, kernel.blocks());
}

// The rows of a group are its k.
template <typename Tile = ProductTile>
struct KGroupedGemmKernel {
  using Workers = typename Tile::Workers;
  using Shared = typename Tile::Shared;
  using Private = typename Tile::Private;
  TandemCudaKGroupedGemm g;

  TANDEM_HD int64_t column_tiles() const { return pieces(g.n, Tile::kColumns); }
  TANDEM_HD int64_t tiles() const { return pieces(g.m, Tile::kRows) * column_tiles(); }
  TANDEM_HD bool run(int64_t block, int phase, int worker, Shared& shared, Private& own) const {
    const int64_t group = block / tiles(), tile = block % tiles();
    const int64_t first = g.offsets[group];
    const int count = g.offsets[group + 1] - g.offsets[group];
    const int first_row = static_cast<int>(tile / column_tiles()) * Tile::kRows;
    const int first_column = static_cast<int>(tile % column_tiles()) * Tile::kColumns;
    const Tile product{operand(g.a + first * g.m, 1, g.m, g.m), operand(g.b + first * g.n, 1, g.n, g.n), count};
    if (phase < product.phases()) {
      product.run(first_row, first_column, phase, worker, shared, own);
      return true;
    }
    if (count == 0) return false;
    product.finish(first_row, first_column, worker, own, [&](int row, int column, float sum) {
      float& target = g.out[(group * g.m + row) * g.n + column];
      target = target + sum;
    });
    return false;
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaKGroupedGemm& g) {
  if (!g.a || !g.b || !g.offsets || !g.out) return kTandemCudaNull;
  if (g.groups < 0 || g.rows < 0 || g.m < 0 || g.n < 0) return kTandemCudaSize;
  if (execution.tensor()) {
    const KGroupedGemmKernel<TensorTile<kSomeRows, 64, 2, 2, false, false>> kernel{g};
    return start(execution, kernel, g.groups * kernel.tiles());
  }
  const KGroupedGemmKernel<> kernel{g};
  return start(execution, kernel, g.groups * kernel.tiles());
}

}  // namespace tandem::kernels::cuda
