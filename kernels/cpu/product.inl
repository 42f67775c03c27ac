// The product of a few rows with one panel, from which all others are made.
//
// tile[r][64] = rows of a times panel [k / 2][64][2], or [k][64] of fp32; with `onto` the chain goes on from what the
// tile holds, which changes no bit. The accumulators of a block (6 x 4 registers
// of 16 lanes on AVX-512, four tiles of 16 x 16 with AMX) stay in registers over all of K, so one chain of additions in
// order of k is also the fastest way.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/cpu/simd.h"
#include "kernels/gemm.h"
#ifdef TANDEM_TILES
#include "kernels/cpu/tiles.h"
#endif

namespace tandem::kernels::TANDEM_ISA {

#if defined(TANDEM_TILES)
constexpr int kTileRows = 16;
#elif defined(__AVX512BF16__)
constexpr int kTileRows = 6, kUnits = 4;
#elif defined(__AVX512F__)
constexpr int kTileRows = 4, kUnits = 4;
#else
constexpr int kTileRows = 6;
#endif
constexpr int kPanelUnits = kPanelColumns / kLanes;

// Memory that is needed soon, asked for while products of what is here already run: `step` bytes for each pair of k.
struct Ahead {
  const char* memory = nullptr;
  size_t step = 0;
  TANDEM_INLINE void fetch() {
    for (size_t byte = 0; byte < step; byte += 64) _mm_prefetch(memory + byte, _MM_HINT_T1);
    memory += step;
  }
};

// The left side of a product: elements from row to row, and from one pair of k to the next. Rows as they lie have pairs
// side by side; the rows of a panel lie side by side and its pairs apart.
template <typename T>
struct LeftRows {
  const T* start;
  size_t row_stride;
  size_t pair_stride = kSideBySide<T>;
};

#if defined(TANDEM_TILES)
// Sixteen pairs of k at a time, by the processor's tiles: their sum is formed first and then added to the element, so
// the order depends on k alone. Rows that are no tile as they lie are copied into one; a last piece is filled up with
// zeros.
inline void product_tile(LeftRows<bf16> rows, int count, const bf16* panel, int k, float* tile,
                         size_t pair_stride = kPanelColumns * 2, Ahead ahead = {}, bool onto = false) {
  constexpr int kPairs = 16;
  constexpr size_t kStride = kPanelColumns * sizeof(float);
  alignas(64) bf16 left[kTileRows * kPairs * 2], right[kPairs * kPanelColumns * 2];
  tiles::configure(count);
  if (onto) {
    tiles::load<0>(tile, kStride);
    tiles::load<1>(tile + kLanes, kStride);
    tiles::load<2>(tile + 2 * kLanes, kStride);
    tiles::load<3>(tile + 3 * kLanes, kStride);
  } else {
    tiles::zero<0>();
    tiles::zero<1>();
    tiles::zero<2>();
    tiles::zero<3>();
  }
  const bf16* a = rows.start;
  for (int first = 0; first < k / 2; first += kPairs, a += kPairs * rows.pair_stride, panel += kPairs * pair_stride) {
    const int pairs = std::min(kPairs, k / 2 - first);
    for (int pair = 0; pair < pairs; ++pair) ahead.fetch();
    if (pairs == kPairs && rows.pair_stride == 2) {
      tiles::load<4>(a, rows.row_stride * sizeof(bf16));
    } else if (pairs == kPairs && rows.row_stride == 2 && count == kTileRows) {
      // Sixteen rows whose pairs lie side by side, as rows one after the other.
      transpose_pairs(a, rows.pair_stride, left, kPairs * 2);
      tiles::load<4>(left, kPairs * 2 * sizeof(bf16));
    } else {
      for (int row = 0; row < count; ++row) {
        bf16* target = left + row * kPairs * 2;
        const bf16* source = a + row * rows.row_stride;
        for (int pair = 0; pair < pairs; ++pair) {
          std::memcpy(target + pair * 2, source + pair * rows.pair_stride, 2 * sizeof(bf16));
        }
        std::fill(target + pairs * 2, target + kPairs * 2, bf16{});
      }
      tiles::load<4>(left, kPairs * 2 * sizeof(bf16));
    }
    const bf16* b = panel;
    size_t stride = pair_stride;
    if (pairs < kPairs) {
      stride = kPanelColumns * 2;
      for (int pair = 0; pair < pairs; ++pair)
        std::memcpy(right + pair * stride, b + pair * pair_stride, stride * sizeof(bf16));
      std::fill(right + pairs * stride, right + kPairs * stride, bf16{});
      b = right;
    }
    stride *= sizeof(bf16);
    tiles::load<5>(b, stride);
    tiles::load<6>(b + 2 * kLanes, stride);
    tiles::multiply<0, 4, 5>();
    tiles::load<7>(b + 4 * kLanes, stride);
    tiles::multiply<1, 4, 6>();
    tiles::load<5>(b + 6 * kLanes, stride);
    tiles::multiply<2, 4, 7>();
    tiles::multiply<3, 4, 5>();
  }
  tiles::store<0>(tile, kStride);
  tiles::store<1>(tile + kLanes, kStride);
  tiles::store<2>(tile + 2 * kLanes, kStride);
  tiles::store<3>(tile + 3 * kLanes, kStride);
}
#else
// Each element is one chain over k; `pair_stride` elements of the panel from pair to pair.
#ifdef __AVX512F__
template <int Rows>
TANDEM_INLINE void product_rows(LeftRows<bf16> rows, const bf16* panel, size_t pair_stride, int k, float* tile,
                                Ahead ahead, bool onto) {
  for (int unit = 0; unit < kPanelUnits; unit += kUnits) {
    Float sums[Rows][kUnits] = {};
    if (onto) {
#pragma GCC unroll 6
      for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
        for (int u = 0; u < kUnits; ++u) sums[r][u] = load(tile + r * kPanelColumns + (unit + u) * kLanes);
      }
    }
    const bf16* a = rows.start;
    const bf16* b = panel + unit * kLanes * 2;
    for (int pair = 0; pair < k / 2; ++pair, a += rows.pair_stride, b += pair_stride) {
      ahead.fetch();
      Bits columns[kUnits];
#pragma GCC unroll 4
      for (int u = 0; u < kUnits; ++u) columns[u] = load_pairs(b + u * kLanes * 2);
#pragma GCC unroll 6
      for (int r = 0; r < Rows; ++r) {
        const uint32_t a_pair = load_pair(a + r * rows.row_stride);
#pragma GCC unroll 4
        for (int u = 0; u < kUnits; ++u) sums[r][u] = dot2(sums[r][u], a_pair, columns[u]);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int u = 0; u < kUnits; ++u) store(tile + r * kPanelColumns + (unit + u) * kLanes, sums[r][u]);
    }
  }
}
#else
// The same chains in registers of eight lanes. Rows are widened beforehand, some pairs of k at a time, so that an
// element of theirs is had for all columns by a load alone: with six rows, twelve sums, two registers of the panel and
// one such element fill the registers. Fewer rows take more columns at once, since one sum must wait for the one before
// it.
constexpr int kUpperHalf = static_cast<int>(0xffff0000u);
constexpr int kWidenedPairs = 128;

inline void widen_row(const bf16* row, size_t pair_stride, int pairs, float* target) {
  int pair = 0;
  if (pair_stride == 2) {
    for (; pair + kLanes / 2 <= pairs; pair += kLanes / 2) store(target + pair * 2, load(row + pair * 2));
  }
  for (; pair < pairs; ++pair) {
    const uint32_t both = load_pair(row + pair * pair_stride);
    target[pair * 2] = std::bit_cast<float>(both << 16);
    target[pair * 2 + 1] = std::bit_cast<float>(both & 0xffff0000u);
  }
}

// Not inlined: among other code GCC keeps the sums in memory.
template <int Rows>
__attribute__((noinline)) void product_rows(LeftRows<bf16> rows, const bf16* panel, size_t pair_stride, int k,
                                            float* tile, Ahead ahead, bool onto) {
  constexpr int kHalves = Rows == 1 ? 8 : Rows <= 3 ? 4 : 2;
  alignas(64) float widened[Rows][kWidenedPairs * 2];
  for (int first = 0; first == 0 || first < k / 2; first += kWidenedPairs) {
    const int pairs = std::min(kWidenedPairs, k / 2 - first);
    for (int r = 0; r < Rows; ++r)
      widen_row(rows.start + r * rows.row_stride + first * rows.pair_stride, rows.pair_stride, pairs, widened[r]);
    for (int column = 0; column < kPanelColumns; column += kHalves * 8) {
      __m256 sums[Rows][kHalves];
#pragma GCC unroll 6
      for (int r = 0; r < Rows; ++r) {
        const float* const old = tile + r * kPanelColumns + column;
#pragma GCC unroll 8
        for (int h = 0; h < kHalves; ++h)
          sums[r][h] = onto || first > 0 ? _mm256_loadu_ps(old + h * 8) : _mm256_setzero_ps();
      }
      const bf16* b = panel + first * pair_stride + column * 2;
      for (int pair = 0; pair < pairs; ++pair, b += pair_stride) {
        if (column == 0) ahead.fetch();
          // The lower elements of the pairs of all columns, then the upper ones.
#pragma GCC unroll 2
        for (int of_pair = 0; of_pair < 2; ++of_pair) {
          __m256 columns[kHalves];
#pragma GCC unroll 8
          for (int h = 0; h < kHalves; ++h) {
            const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b) + h);
            columns[h] = _mm256_castsi256_ps(of_pair == 0 ? _mm256_slli_epi32(both, 16)
                                                          : _mm256_and_si256(both, _mm256_set1_epi32(kUpperHalf)));
          }
#pragma GCC unroll 6
          for (int r = 0; r < Rows; ++r) {
            const __m256 a = _mm256_broadcast_ss(&widened[r][pair * 2 + of_pair]);
#pragma GCC unroll 8
            for (int h = 0; h < kHalves; ++h) sums[r][h] = _mm256_fmadd_ps(a, columns[h], sums[r][h]);
          }
        }
      }
#pragma GCC unroll 6
      for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
        for (int h = 0; h < kHalves; ++h) _mm256_storeu_ps(tile + r * kPanelColumns + column + h * 8, sums[r][h]);
      }
    }
  }
}
#endif

// count <= kTileRows.
inline void product_tile(LeftRows<bf16> rows, int count, const bf16* panel, int k, float* tile,
                         size_t pair_stride = kPanelColumns * 2, Ahead ahead = {}, bool onto = false) {
  switch (count) {
    case 1:
      return product_rows<1>(rows, panel, pair_stride, k, tile, ahead, onto);
    case 2:
      return product_rows<2>(rows, panel, pair_stride, k, tile, ahead, onto);
    case 3:
      return product_rows<3>(rows, panel, pair_stride, k, tile, ahead, onto);
    case 4:
      return product_rows<4>(rows, panel, pair_stride, k, tile, ahead, onto);
#if defined(__AVX512BF16__) || !defined(__AVX512F__)
    case 5:
      return product_rows<5>(rows, panel, pair_stride, k, tile, ahead, onto);
    case 6:
      return product_rows<6>(rows, panel, pair_stride, k, tile, ahead, onto);
#endif
  }
}
#endif

// Rows in fp32: one fused multiply-add for each k, on every instruction set.
template <int Rows>
TANDEM_INLINE void product_rows(LeftRows<float> rows, const float* panel, size_t stride, int k, float* tile) {
#ifdef __AVX512F__
  constexpr int kUnitsAtOnce = kPanelUnits;
#else
  constexpr int kUnitsAtOnce = 1;
#endif
  for (int unit = 0; unit < kPanelUnits; unit += kUnitsAtOnce) {
    Float sums[Rows][kUnitsAtOnce] = {};
    const float* b = panel + unit * kLanes;
    for (int i = 0; i < k; ++i, b += stride) {
#pragma GCC unroll 4
      for (int u = 0; u < kUnitsAtOnce; ++u) {
        const Float columns = load(b + u * kLanes);
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) {
          sums[r][u] = fma(broadcast(rows.start[r * rows.row_stride + i]), columns, sums[r][u]);
        }
      }
    }
    for (int r = 0; r < Rows; ++r) {
      for (int u = 0; u < kUnitsAtOnce; ++u) store(tile + r * kPanelColumns + (unit + u) * kLanes, sums[r][u]);
    }
  }
}

// count <= kTileRows, taken four by four. `stride` elements of the panel from one k to the next.
inline void product_tile(LeftRows<float> rows, int count, const float* panel, int k, float* tile,
                         size_t stride = kPanelColumns, Ahead = {}) {
  for (int row = 0; row < count; row += 4) {
    const LeftRows<float> part{rows.start + row * rows.row_stride, rows.row_stride};
    float* target = tile + row * kPanelColumns;
    switch (count - row) {
      case 1:
        product_rows<1>(part, panel, stride, k, target);
        break;
      case 2:
        product_rows<2>(part, panel, stride, k, target);
        break;
      case 3:
        product_rows<3>(part, panel, stride, k, target);
        break;
      default:
        product_rows<4>(part, panel, stride, k, target);
    }
  }
}

}  // namespace tandem::kernels::TANDEM_ISA
