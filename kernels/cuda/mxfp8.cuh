// Products of MXFP8 as kernels/reference/mxfp8.h defines them, one thread an element; and, for devices whose tensor
// cores take scales, how a tile lies in shared memory and in tensor memory (mxfp8.cu has the instructions).
//
// Facts of the second part are those of NVIDIA's PTX ISA, version 9.0, "tcgen05": matrix descriptors without swizzle,
// instruction descriptors of .kind::mxf8f6f4, scale factors of .scale_vec::1X.
#pragma once

#include "kernels/cuda/quantize.cuh"

namespace tandem::kernels::cuda {

// Rows of one group with its weight.
struct Mxfp8Rows {
  const uint8_t *a, *a_scales, *b, *b_scales;
  int rows, columns, k;
  int64_t first;  // row of the output
  TANDEM_HD int64_t blocks() const { return pieces(k, kMxfp8Block); }
};

TANDEM_HD float mxfp8_element(const Mxfp8Rows& p, int64_t row, int64_t column) {
  float sum = 0;
  for (int64_t block = 0; block < p.blocks(); ++block) {
    const int64_t first = block * kMxfp8Block;
    double products = 0;
    for (int i = 0; i < block_length(block, kMxfp8Block, p.k); ++i) {
      products = products + static_cast<double>(from_e4m3(p.a[row * p.k + first + i])) *
                                static_cast<double>(from_e4m3(p.b[column * p.k + first + i]));
    }
    const uint8_t a = p.a_scales[row * p.blocks() + block], b = p.b_scales[column * p.blocks() + block];
    const double scale = a == kNanScale || b == kNanScale
                             ? static_cast<double>(not_a_number())
                             : static_cast<double>(from_e8m0(a)) * static_cast<double>(from_e8m0(b));
    sum = static_cast<float>(static_cast<double>(sum) + products * scale);
  }
  return sum;
}

// A product with one weight or with one for each group, whose rows offsets[g] to offsets[g + 1] are.
struct Mxfp8Problem {
  const uint8_t *a, *a_scales, *b, *b_scales;
  const int32_t* offsets;  // or null: one group
  uint16_t* out;           // one of the two
  float* out_float;
  int64_t out_stride;
  int groups, m, n, k;

  TANDEM_HD Mxfp8Rows group(int g) const {
    const int64_t first = offsets ? offsets[g] : 0, end = offsets ? offsets[g + 1] : m, blocks = pieces(k, kMxfp8Block);
    return {a + first * k,
            a_scales + first * blocks,
            b + static_cast<int64_t>(g) * n * k,
            b_scales + g * n * blocks,
            static_cast<int>(end - first),
            n,
            k,
            first};
  }
  TANDEM_HD void put(int64_t row, int64_t column, float sum) const {
    if (out) {
      out[row * out_stride + column] = to_bf16_bits(sum);
    } else {
      out_float[row * out_stride + column] = sum;
    }
  }
};

struct Mxfp8Element {
  Mxfp8Problem p;
  TANDEM_HD void operator()(int64_t i) const {
    const int64_t row = i / p.n, column = i % p.n;
    int g = 0;
    while (p.offsets && g + 1 < p.groups && p.offsets[g + 1] <= row) ++g;
    const Mxfp8Rows rows = p.group(g);
    p.put(row, column, mxfp8_element(rows, row - rows.first, column));
  }
};

// The tile of one group that a block of threads computes on tensor cores: 128 x 128 elements, 128 of k at a time, which
// are four instructions of 32.
constexpr int kMxSide = 128, kMxDepth = 128, kMxInstruction = 32;
struct Mxfp8Tile {
  int group, first_row, first_column;  // group -1: there is none
};
TANDEM_HD int64_t mxfp8_tiles(const Mxfp8Problem& p) {
  // A group that begins in the middle of a tile has one more than its share.
  return (pieces(p.m, kMxSide) + (p.offsets ? p.groups : 0)) * pieces(p.n, kMxSide);
}
TANDEM_HD Mxfp8Tile mxfp8_tile(const Mxfp8Problem& p, int64_t index) {
  const int64_t across = pieces(p.n, kMxSide);
  int64_t tile = index / across;
  for (int g = 0; g < p.groups; ++g) {
    const int64_t tiles = pieces(p.group(g).rows, kMxSide);
    if (tile < tiles) return {g, static_cast<int>(tile) * kMxSide, static_cast<int>(index % across) * kMxSide};
    tile -= tiles;
  }
  return {-1, 0, 0};
}

// What of a tile lies in shared memory at once. Codes lie in core matrices of 8 rows x 16 bytes, those of one group of
// 8 rows side by side along k; scales as 32 rows of 16 bytes: row r's four are in row r % 32, word r / 32.
struct Mxfp8Stage {
  alignas(128) uint8_t a[kMxSide * kMxDepth];
  alignas(128) uint8_t b[kMxSide * kMxDepth];
  alignas(128) uint8_t a_scales[kMxSide * kMxDepth / kMxfp8Block];
  alignas(128) uint8_t b_scales[kMxSide * kMxDepth / kMxfp8Block];
};
constexpr uint32_t kCoreRows = 8, kCoreBytes = 16, kCore = kCoreRows * kCoreBytes;
constexpr uint32_t kNextAlongK = kCore, kNextRows = kCore * (kMxDepth / kCoreBytes);
TANDEM_HD uint32_t mxfp8_code_at(uint32_t row, uint32_t k) {
  return row / kCoreRows * kNextRows + k / kCoreBytes * kNextAlongK + row % kCoreRows * kCoreBytes + k % kCoreBytes;
}
TANDEM_HD uint32_t mxfp8_scale_at(uint32_t row, uint32_t block) { return row % 32 * 16 + row / 32 * 4 + block; }

// One side of a stage, by all threads together. What lies outside is 0, with scales of 1.
TANDEM_HD void mxfp8_fill(const uint8_t* codes, const uint8_t* scales, int rows, int k, int first_row, int first_k,
                          int thread, int threads, uint8_t* to, uint8_t* scales_to) {
  for (int i = thread; i < kMxSide * kMxDepth; i += threads) {
    const int row = i / kMxDepth, at = i % kMxDepth;
    const bool there = first_row + row < rows && first_k + at < k;
    to[mxfp8_code_at(row, at)] = there ? codes[static_cast<int64_t>(first_row + row) * k + first_k + at] : uint8_t{0};
  }
  constexpr int kBlocks = kMxDepth / kMxfp8Block;
  for (int i = thread; i < kMxSide * kBlocks; i += threads) {
    const int row = i / kBlocks;
    const int64_t block = first_k / kMxfp8Block + i % kBlocks, blocks = pieces(k, kMxfp8Block);
    const bool there = first_row + row < rows && block < blocks;
    scales_to[mxfp8_scale_at(row, i % kBlocks)] = there ? scales[(first_row + row) * blocks + block] : uint8_t{127};
  }
}

// Where a matrix begins in shared memory, and how far its core matrices lie apart along k and along rows, in bytes.
TANDEM_HD uint64_t matrix_descriptor(uint32_t start, uint32_t along_k, uint32_t along_rows) {
  const auto field = [](uint32_t bytes) { return static_cast<uint64_t>((bytes & 0x3ffff) >> 4); };
  return field(start) | field(along_k) << 16 | field(along_rows) << 32 | uint64_t{1} << 46;
}
// E4M3 on both sides, both along k, scales in E8M0, 128 x 128; `block` is which of the four scales in a word counts.
TANDEM_HD uint32_t mxfp8_instruction(uint32_t block) {
  constexpr uint32_t kE8m0 = 1;
  return block << 4 | (kMxSide >> 3) << 17 | kE8m0 << 23 | (kMxSide >> 4) << 24 | block << 29;
}

template <typename Execution>
int operate(Execution& execution, const Mxfp8Problem& p) {
  if constexpr (requires { execution.run_block_scaled(p); }) {
    if (execution.has_block_scaling()) return execution.run_block_scaled(p);
  }
  return each_element(execution, static_cast<int64_t>(p.m) * p.n, Mxfp8Element{p});
}
template <typename Execution>
int operate(Execution& execution, const TandemCudaMxfp8Gemm& g) {
  if (!g.a || !g.a_scales || !g.b || !g.b_scales || (!g.out && !g.out_float)) return kTandemCudaNull;
  if (g.out && g.out_float) return kTandemCudaShape;
  if (g.m < 0 || g.n < 0 || g.k < 0) return kTandemCudaSize;
  if (g.out_stride < g.n) return kTandemCudaStride;
  return operate(execution, Mxfp8Problem{g.a, g.a_scales, g.b, g.b_scales, nullptr, g.out, g.out_float, g.out_stride, 1,
                                         g.m, g.n, g.k});
}
template <typename Execution>
int operate(Execution& execution, const TandemCudaMxfp8GroupedGemm& g) {
  if (!g.a || !g.a_scales || !g.offsets || !g.b || !g.b_scales || !g.out) return kTandemCudaNull;
  if (g.groups < 0 || g.m < 0 || g.n < 0 || g.k < 0) return kTandemCudaSize;
  if (g.out_stride < g.n) return kTandemCudaStride;
  if (g.groups == 0) return kTandemCudaOk;
  return operate(execution, Mxfp8Problem{g.a, g.a_scales, g.b, g.b_scales, g.offsets, g.out, nullptr, g.out_stride,
                                         g.groups, g.m, g.n, g.k});
}

}  // namespace tandem::kernels::cuda
