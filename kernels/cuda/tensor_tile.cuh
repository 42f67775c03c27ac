// A tile of a product on tensor cores, for kernels that go on with it: the tile of gemm.cuh by warps. Each element is
// the chain of tensor_sums.cuh, 16 of k after the other, whatever the tile's size.
//
// Both sides pass through a ring of stages in shared memory, each 64 of k deep, asked for some stages ahead. A side
// that lies densely along k becomes rows of k there, else rows along the side: what mma takes is read from both by
// ldmatrix, from the second transposed. Rows are swizzled in pieces of 16 bytes, so that eight rows of one piece use
// all banks.
#pragma once

#include "kernels/cuda/product_tile.cuh"
#include "kernels/cuda/warps.cuh"

namespace tandem::kernels::cuda {

constexpr int kTensorDepth = 64;  // of k in a stage
constexpr int kPiece = 8;         // elements of 16 bytes

// Eight elements of a side, from `row` and `k` on along k or along its rows; what is not there is 0.
template <bool AlongK>
TANDEM_HD void pieces_of(const Operand& side, int row, int k, int depth, uint16_t* to) {
  uint16_t values[kPiece];
  const bool whole = row < side.rows && k + kPiece <= depth;
  if (AlongK && side.coded.codes && whole && side.row_stride % kPiece == 0 &&
      reinterpret_cast<uintptr_t>(side.coded.codes) % kPiece == 0) {
    // A block's index: blocks are multiples of eight long.
    const int64_t block =
        row / side.coded.block_rows * pieces(side.row_stride, side.coded.block) + k / side.coded.block;
    uint64_t codes;
    memcpy(&codes, __builtin_assume_aligned(side.coded.codes + row * side.row_stride + k, 8), sizeof codes);
    const uint8_t scale = side.coded.scales[block];
    for (int i = 0; i < kPiece; ++i) values[i] = expanded(static_cast<uint8_t>(codes >> (8 * i)), scale);
  } else {
    for (int i = 0; i < kPiece; ++i) {
      const int at_row = AlongK ? row : row + i, at_k = AlongK ? k + i : k;
      values[i] = at_row < side.rows && at_k < depth ? to_bf16_bits(side.at(at_row, at_k)) : uint16_t{0};
    }
  }
#ifdef __CUDA_ARCH__
  *reinterpret_cast<uint4*>(to) = make_uint4(pair_of_bf16(values[0], values[1]), pair_of_bf16(values[2], values[3]),
                                             pair_of_bf16(values[4], values[5]), pair_of_bf16(values[6], values[7]));
#else
  memcpy(to, values, sizeof values);
#endif
}
// Whether a side's pieces can be copied as they lie.
TANDEM_HD bool by_pieces(const Operand& side, bool along_k) {
  const int64_t dense = along_k ? side.k_stride : side.row_stride, stride = along_k ? side.row_stride : side.k_stride;
  return side.bf16 != nullptr && dense == 1 && stride % kPiece == 0 && reinterpret_cast<uintptr_t>(side.bf16) % 16 == 0;
}

// Tile of Rows x Columns by Down x Across warps. A (rows) and B (columns): whether the side lies along k in shared
// memory.
template <int Rows, int Columns, int Down, int Across, bool AAlongK = true, bool BAlongK = true, int Stages = 3>
struct TensorTile {
  static constexpr int kRows = Rows, kColumns = Columns, kStages = Stages;
  static constexpr int kTileWarps = Down * Across;
  static constexpr int kWarpRows = Rows / Down, kWarpColumns = Columns / Across;
  static constexpr int kDown = kWarpRows / 16, kAcross = kWarpColumns / 8;  // products of a warp
  static_assert(kWarpRows % 16 == 0 && kWarpColumns % 16 == 0);
  struct Workers {
    static constexpr int kWarps = kTileWarps, kAtOnce = kTileWarps > 4 ? 2 : 1;
  };

  // A side in one stage.
  template <int Count, bool AlongK>
  struct Side {
    static constexpr int kLines = AlongK ? Count : kTensorDepth, kPieces = (AlongK ? kTensorDepth : Count) / kPiece;
    static constexpr int kMask = (kPieces < 8 ? kPieces : 8) - 1;
    static_assert((kPieces & (kPieces - 1)) == 0);
    alignas(16) uint16_t values[kLines][kPieces * kPiece];

    TANDEM_HD uint16_t* piece(int line, int i) { return values[line] + (i ^ (line & kMask)) * kPiece; }
    TANDEM_HD void ask(const Operand& side, bool copied, int first, int first_k, int k, int thread) {
      for (int i = thread; i < kLines * kPieces; i += kTileWarps * kWarp) {
        const int line = i / kPieces, piece_at = i % kPieces;
        const int row = first + (AlongK ? line : piece_at * kPiece),
                  at_k = first_k + (AlongK ? piece_at * kPiece : line);
        uint16_t* const to = piece(line, piece_at);
        if (!copied) {
          pieces_of<AlongK>(side, row, at_k, k, to);
          continue;
        }
        const int there = row < side.rows && at_k < k ? (AlongK ? k - at_k : side.rows - row) : 0;
        copy_async(to, side.bf16 + (there > 0 ? row * side.row_stride + at_k * side.k_stride : 0),
                   (there < kPiece ? there : kPiece) * static_cast<int>(sizeof(uint16_t)));
      }
    }
  };
  struct Stage {
    Side<Rows, AAlongK> a;
    Side<Columns, BAlongK> b;
  };
  struct Shared {
    Stage stages[Stages];
  };
  struct Private {
    Registers<float, kDown * kAcross * 4> sums;
  };
  Operand a, b;
  int k;

  TANDEM_HD int64_t row_blocks() const { return pieces(a.rows, Rows); }
  TANDEM_HD int64_t column_blocks() const { return pieces(b.rows, Columns); }
  TANDEM_HD int64_t blocks() const { return row_blocks() * column_blocks(); }
  TANDEM_HD int phases() const { return 1 + static_cast<int>(pieces(k, kTensorDepth)); }

  // Phase 0 asks for the first stages, phase i multiplies stage i - 1 and asks for one that is free by then.
  TANDEM_HD void run(int first_row, int first_column, int phase, int warp, Shared& shared, Private& own) const {
    const int count = phases() - 1;
    if (phase == 0) {
      clear(own);
      for (int stage = 0; stage < Stages - 1; ++stage) ask(first_row, first_column, stage, count, warp, shared);
    } else {
      ask(first_row, first_column, phase - 1 + Stages - 1, count, warp, shared);
      multiply_stage(shared.stages[(phase - 1) % Stages], warp, own);
    }
    wait_for_copies<Stages - 2>();
  }

  // each(row, column, sum) for the elements of this warp that lie inside.
  template <typename Each>
  TANDEM_HD void finish(int first_row, int first_column, int warp, Private& own, const Each& each) const {
    each_lane([&](int lane) {
      TANDEM_UNROLL
      for (int down = 0; down < kDown; ++down) {
        TANDEM_UNROLL
        for (int across = 0; across < kAcross; ++across) {
          TANDEM_UNROLL
          for (int i = 0; i < 4; ++i) {
            const int row = first_row + row_of(warp, lane, down, i / 2);
            const int column = first_column + column_of(warp, lane, across, i % 2);
            if (row < a.rows && column < b.rows) each(row, column, own.sums.at(lane, sum_at(down, across) + i));
          }
        }
      }
    });
  }
  TANDEM_HD static int sum_at(int down, int across) { return (down * kAcross + across) * 4; }
  TANDEM_HD static int row_of(int warp, int lane, int down, int half) {
    return warp / Across * kWarpRows + down * 16 + half * 8 + lane / 4;
  }
  TANDEM_HD static int column_of(int warp, int lane, int across, int second) {
    return warp % Across * kWarpColumns + across * 8 + lane % 4 * 2 + second;
  }

 private:
  TANDEM_HD static void clear(Private& own) {
    each_lane([&](int lane) {
      TANDEM_UNROLL
      for (int i = 0; i < kDown * kAcross * 4; ++i) own.sums.at(lane, i) = 0;
    });
  }
  TANDEM_HD void ask(int first_row, int first_column, int stage, int count, int warp, Shared& shared) const {
    if (stage < count) {
      Stage& to = shared.stages[stage % Stages];
      const bool a_copied = by_pieces(a, AAlongK), b_copied = by_pieces(b, BAlongK);
      each_lane([&](int lane) {
        const int thread = warp * kWarp + lane;
        to.a.ask(a, a_copied, first_row, stage * kTensorDepth, k, thread);
        to.b.ask(b, b_copied, first_column, stage * kTensorDepth, k, thread);
      });
    }
    end_of_copies();
  }
  TANDEM_HD static void multiply_stage(Stage& stage, int warp, Private& own) {
    const int first_row = warp / Across * kWarpRows, first_column = warp % Across * kWarpColumns;
    TANDEM_UNROLL
    for (int step = 0; step < kTensorDepth / 16; ++step) {
      Registers<uint32_t, kDown * 4> rows;
      Registers<uint32_t, kAcross * 2> columns;
      TANDEM_UNROLL
      for (int down = 0; down < kDown; ++down) {
        load_matrices<!AAlongK>(rows, down * 4, [&](int lane) {
          const int matrix = lane / 8, row = first_row + down * 16 + matrix % 2 * 8, at = step * 16 + matrix / 2 * 8;
          return AAlongK ? stage.a.piece(row + lane % 8, at / kPiece) : stage.a.piece(at + lane % 8, row / kPiece);
        });
      }
      TANDEM_UNROLL
      for (int across = 0; across < kAcross; across += 2) {
        load_matrices<!BAlongK>(columns, across * 2, [&](int lane) {
          const int matrix = lane / 8, column = first_column + across * 8 + matrix / 2 * 8;
          const int at = step * 16 + matrix % 2 * 8;
          return BAlongK ? stage.b.piece(column + lane % 8, at / kPiece)
                         : stage.b.piece(at + lane % 8, column / kPiece);
        });
      }
      TANDEM_UNROLL
      for (int down = 0; down < kDown; ++down) {
        TANDEM_UNROLL
        for (int across = 0; across < kAcross; ++across)
          multiply(own.sums, sum_at(down, across), rows, down * 4, columns, across * 2);
      }
    }
  }
};

}  // namespace tandem::kernels::cuda
