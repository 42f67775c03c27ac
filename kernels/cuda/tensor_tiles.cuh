// Tiles of 64 rows in shared memory, and the two products of tensor cores that attention is made of.
//
// `Size` is a head's width in a tile, a multiple of 32; what a head lacks of it is 0, and an instruction whose products
// are all 0 changes no sum, so that it does not change the bits. Registers of a warp are those of `multiply`.
#pragma once

#include "kernels/cuda/warps.cuh"

namespace tandem::kernels::cuda {

constexpr int kTileRows = 64;
constexpr int kWarpRows = 16;      // of an instruction
constexpr int kPieceElements = 8;  // of a copy

inline bool lies_by_pieces(const void* at, int64_t stride) {
  return reinterpret_cast<uintptr_t>(at) % 16 == 0 && stride % kPieceElements == 0;
}

template <int Size>
struct Tile {
  static_assert(Size % 32 == 0);
  static constexpr int kStride = Size + kPieceElements;  // odd in pieces: 8 rows of load_matrices share no bank
  alignas(16) uint16_t elements[kTileRows * kStride];

  TANDEM_HD uint16_t* at(int row, int column) { return elements + row * kStride + column; }
  TANDEM_HD const uint16_t* at(int row, int column) const { return elements + row * kStride + column; }
};

// Where a row of a tile begins, and whether it is there; else it is 0.
struct TileRow {
  const uint16_t* at;
  bool there;
};
// Asks for a tile, row i of which is row_of(i). Warp `worker` of `Workers` asks for its part. `Together` rows are
// looked up before the first of them is asked for. Rows that are not `aligned` to pieces are copied at once.
template <int Workers, int Together, int Size, typename RowOf>
TANDEM_HD void copy_tile(Tile<Size>& tile, int size, bool aligned, int worker, const RowOf& row_of) {
  constexpr unsigned kPieces = Size / kPieceElements, kThreads = Workers * kWarp,
                     kEach = kTileRows * kPieces / kThreads;
  constexpr unsigned kTogether = kEach < Together ? kEach : Together;
  static_assert(kEach % kTogether == 0);
  each_lane([&](int lane) {
    const unsigned thread = static_cast<unsigned>(worker * kWarp + lane);
    const auto row = [&](unsigned i) { return static_cast<int>((i * kThreads + thread) / kPieces); };
    const auto column = [&](unsigned i) {
      return static_cast<int>((i * kThreads + thread) % kPieces * kPieceElements);
    };
    if (!aligned) {
      TANDEM_NO_UNROLL
      for (unsigned i = 0; i < kEach; ++i) {
        const TileRow from = row_of(row(i));
        TANDEM_NO_UNROLL
        for (int e = 0; e < kPieceElements; ++e) {
          *tile.at(row(i), column(i) + e) = from.there && column(i) < size ? from.at[column(i) + e] : uint16_t{0};
        }
      }
      return;
    }
    TANDEM_UNROLL
    for (unsigned start = 0; start < kEach; start += kTogether) {
      TileRow rows[kTogether];
      TANDEM_UNROLL
      for (unsigned i = 0; i < kTogether; ++i) rows[i] = row_of(row(start + i));
      TANDEM_UNROLL
      for (unsigned i = 0; i < kTogether; ++i) {
        const int at = column(start + i);
        copy_async(tile.at(row(start + i), at), rows[i].at + at, rows[i].there && at < size ? 16 : 0);
      }
    }
  });
}

// Rows g and g + 8 of 16, row_of(lane, 0) and row_of(lane, 1), as the first side of an instruction; null is 0.
template <int Size, typename RowOf>
TANDEM_HD void load_rows(Registers<uint32_t, Size / 4>& rows, int size, bool aligned, const RowOf& row_of) {
  each_lane([&](int lane) {
    const uint16_t* const from[2] = {row_of(lane, 0), row_of(lane, 1)};
    const auto load = [&](const auto& pair_at) {
      TANDEM_UNROLL
      for (int i = 0; i < Size / 4; ++i) {
        const int column = i / 4 * kTensorTerms + i % 4 / 2 * 8 + lane % 4 * 2;
        rows.at(lane, i) = from[i % 2] && column < size ? pair_at(from[i % 2] + column) : 0u;
      }
    };
    if (aligned)
      load([](const uint16_t* at) {
        uint32_t pair;
        memcpy(&pair, __builtin_assume_aligned(at, sizeof pair), sizeof pair);
        return pair;
      });
    else
      load([](const uint16_t* at) { return pair_of_bf16(at[0], at[1]); });
  });
}

template <int N>
TANDEM_HD void clear(Registers<float, N>& registers) {
  each_lane([&](int lane) {
    TANDEM_UNROLL
    for (int i = 0; i < N; ++i) registers.at(lane, i) = 0;
  });
}

// Part k of the sums below, of 16 elements of the head: `rows` from rows[at] on.
template <int Size, int N>
TANDEM_HD void add_dots(Registers<float, 32>& sums, const Registers<uint32_t, N>& rows, int at, const Tile<Size>& tile,
                        int k) {
  TANDEM_UNROLL
  for (int n = 0; n < 8; n += 2) {
    Registers<uint32_t, 4> columns;
    load_matrices<false>(columns, 0, [&](int lane) {
      return tile.at((n + lane / 16) * 8 + lane % 8, k * kTensorTerms + lane / 8 % 2 * 8);
    });
    multiply(sums, 4 * n, rows, at, columns, 0);
    multiply(sums, 4 * n + 4, rows, at, columns, 2);
  }
}
// Sums of 16 rows and the 64 of a tile: sums 4 n + i are of the tile's rows 8 n + 2 t + i % 2. Each is one chain over
// the head.
template <int Size>
TANDEM_HD void dots(Registers<float, 32>& sums, const Registers<uint32_t, Size / 4>& rows, const Tile<Size>& tile) {
  clear(sums);
  TANDEM_UNROLL
  for (int k = 0; k < Size / kTensorTerms; ++k) add_dots(sums, rows, 4 * k, tile, k);
}
// The same for rows 16 part to 16 part + 15 of another tile.
template <int Size>
TANDEM_HD void dots(Registers<float, 32>& sums, const Tile<Size>& rows, int part, const Tile<Size>& tile) {
  clear(sums);
  TANDEM_UNROLL
  for (int k = 0; k < Size / kTensorTerms; ++k) {
    Registers<uint32_t, 4> row;
    load_matrices<false>(
        row, 0, [&](int lane) { return rows.at(part * kWarpRows + lane % 16, k * kTensorTerms + lane / 16 * 8); });
    add_dots(sums, row, 0, tile, k);
  }
}

// Sums over the 64 rows of a tile, by 16 rows of `weights`: take(c, sums) gets those of columns 32 c and on, of which
// 4 n + i are of columns 32 c + 8 n + 2 t + i % 2. Each is one chain over the tile's rows.
template <int Size, typename Take>
TANDEM_HD void gather(const Registers<uint32_t, 16>& weights, const Tile<Size>& tile, const Take& take) {
  TANDEM_UNROLL
  for (int c = 0; c < Size / 32; ++c) {
    Registers<float, 16> sums;
    clear(sums);
    TANDEM_UNROLL
    for (int k = 0; k < kTileRows / kTensorTerms; ++k) {
      TANDEM_UNROLL
      for (int half = 0; half < 2; ++half) {
        Registers<uint32_t, 4> columns;
        load_matrices<true>(columns, 0, [&](int lane) {
          return tile.at(k * kTensorTerms + lane % 16, 32 * c + 16 * half + lane / 16 * 8);
        });
        multiply(sums, 8 * half, weights, 4 * k, columns, 0);
        multiply(sums, 8 * half + 4, weights, 4 * k, columns, 2);
      }
    }
    take(c, sums);
  }
}

// As `exponential`, for lanes that go together: no branches. With AtMostZero of numbers up to 0 or NaN.
template <bool AtMostZero>
TANDEM_HD float exponential_of_lane(float x) {
  float p = exponential_within(x);
  p = x < kLeastExponent ? 0.0f : p;
  if constexpr (!AtMostZero) p = x > kMostExponent ? infinity() : p;
  return x != x ? x : p;
}
// As `larger`, but for which of two zeros it is and for NaN, which makes a row NaN either way.
TANDEM_HD float larger_of_lane(float a, float b) {
#ifdef __CUDA_ARCH__
  return fmaxf(a, b);
#else
  return larger(a, b);
#endif
}

// Both rounded as to_bf16_bits rounds; the bits of NaN are not promised.
TANDEM_HD uint32_t rounded_pair(float low, float high) {
#ifdef __CUDA_ARCH__
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return pair_of_bf16(to_bf16_bits(low), to_bf16_bits(high));
#endif
}

// What stands in the layout of sums of 16 x 64, rounded, as the first side of an instruction: weight(lane, i) is sum i.
template <typename Weight>
TANDEM_HD void as_weights(Registers<uint32_t, 16>& weights, const Weight& weight) {
  each_lane([&](int lane) {
    TANDEM_UNROLL
    for (int i = 0; i < 16; ++i) weights.at(lane, i) = rounded_pair(weight(lane, 2 * i), weight(lane, 2 * i + 1));
  });
}

}  // namespace tandem::kernels::cuda
