// The product of a few rows with one panel, and the matrix product made of it.
//
// Blocking: a panel (64 columns, all of K) stays in the second-level cache while blocks of kTileRows rows pass over it;
// the accumulators of a block (6 x 4 registers of 16 lanes on AVX-512) stay in registers over all of K, so one chain of
// additions in order of k is also the fastest way. Decode (few rows) streams each panel once from memory.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/simd.h"

namespace tandem::kernels::TANDEM_ISA {

#if defined(__AVX512BF16__)
constexpr int kTileRows = 6, kUnits = 4;
#else
constexpr int kTileRows = 4, kUnits = 4;
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
struct LeftRows {
  const bf16* start;
  size_t row_stride;
  size_t pair_stride = 2;
};

// tile[r][64] = rows of a times panel [k / 2][64][2], `pair_stride` elements from pair to pair; each element one chain
// over k.
#ifdef __AVX512F__
template <int Rows>
TANDEM_INLINE void product_rows(LeftRows rows, const bf16* panel, size_t pair_stride, int k, float* tile, Ahead ahead) {
  for (int unit = 0; unit < kPanelUnits; unit += kUnits) {
    Float sums[Rows][kUnits] = {};
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
// The same chains in 256-bit halves: the compiler does not keep arrays of two-register vectors in registers.
template <int Rows>
TANDEM_INLINE void product_rows(LeftRows rows, const bf16* panel, size_t pair_stride, int k, float* tile, Ahead ahead) {
  for (int column = 0; column < kPanelColumns; column += kLanes) {
    __m256 sums[Rows][2];
    for (int r = 0; r < Rows; ++r) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
    const bf16* a = rows.start;
    const bf16* b = panel + column * 2;
    for (int pair = 0; pair < k / 2; ++pair, a += rows.pair_stride, b += pair_stride) {
      if (column == 0) ahead.fetch();
      const __m256i pairs[2] = {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b)),
                                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b) + 1)};
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m256 low = _mm256_castsi256_ps(_mm256_slli_epi32(pairs[half], 16));
        const __m256 high =
            _mm256_castsi256_ps(_mm256_and_si256(pairs[half], _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) {
          const uint32_t a_pair = load_pair(a + r * rows.row_stride);
          const __m256 a_low = _mm256_set1_ps(std::bit_cast<float>(a_pair << 16));
          const __m256 a_high = _mm256_set1_ps(std::bit_cast<float>(a_pair & 0xffff0000u));
          sums[r][half] = _mm256_fmadd_ps(a_high, high, _mm256_fmadd_ps(a_low, low, sums[r][half]));
        }
      }
    }
    for (int r = 0; r < Rows; ++r) {
      _mm256_storeu_ps(tile + r * kPanelColumns + column, sums[r][0]);
      _mm256_storeu_ps(tile + r * kPanelColumns + column + 8, sums[r][1]);
    }
  }
}
#endif

// count <= kTileRows.
inline void product_tile(LeftRows rows, int count, const bf16* panel, int k, float* tile,
                         size_t pair_stride = kPanelColumns * 2, Ahead ahead = {}) {
  switch (count) {
    case 1:
      return product_rows<1>(rows, panel, pair_stride, k, tile, ahead);
    case 2:
      return product_rows<2>(rows, panel, pair_stride, k, tile, ahead);
    case 3:
      return product_rows<3>(rows, panel, pair_stride, k, tile, ahead);
    case 4:
      return product_rows<4>(rows, panel, pair_stride, k, tile, ahead);
#if defined(__AVX512BF16__)
    case 5:
      return product_rows<5>(rows, panel, pair_stride, k, tile, ahead);
    case 6:
      return product_rows<6>(rows, panel, pair_stride, k, tile, ahead);
#endif
  }
}

inline size_t panel_elements(int k) { return size_t{kPanelColumns} * 2 * ((k + 1) / 2); }

inline void pack(ThreadPool& threads, const bf16* weight, int n, int k, bf16* packed) {
  const int panels = (n + kPanelColumns - 1) / kPanelColumns;
  threads.run(panels, [&](int panel) {
    uint32_t* target = reinterpret_cast<uint32_t*>(packed + panel * panel_elements(k));
    const int columns = std::min(kPanelColumns, n - panel * kPanelColumns);
    // Sixteen pairs of k at a time, so that reads and writes both go by whole cache lines.
    for (int pair = 0; pair < k / 2; pair += 16) {
      const int pairs = std::min(16, k / 2 - pair);
      for (int column = 0; column < kPanelColumns; ++column) {
        const bf16* source = weight + (size_t{static_cast<size_t>(panel)} * kPanelColumns + column) * k + pair * 2;
        for (int i = 0; i < pairs; ++i) {
          target[(pair + i) * kPanelColumns + column] = column < columns ? load_pair(source + i * 2) : 0;
        }
      }
    }
  });
}

inline void pack_transposed(ThreadPool& threads, const bf16* weight, int k, int n, bf16* packed) {
  const int panels = (n + kPanelColumns - 1) / kPanelColumns;
  threads.run(panels, [&](int panel) {
    bf16* target = packed + panel * panel_elements(k);
    const int first = panel * kPanelColumns;
    const int columns = std::min(kPanelColumns, n - first);
    for (int row = 0; row < k; row += 2) {
      const bf16* low = weight + static_cast<size_t>(row) * n + first;
      bf16* pair = target + row * kPanelColumns;
      if (columns == kPanelColumns && row + 1 < k) {
        for (int column = 0; column < kPanelColumns; column += kLanes) {
          const Bits pairs = load_halves(low + column) | load_halves(low + n + column) << 16;
          std::memcpy(pair + column * 2, &pairs, sizeof pairs);
        }
        continue;
      }
      for (int column = 0; column < kPanelColumns; ++column) {
        pair[column * 2] = column < columns ? low[column] : bf16{};
        pair[column * 2 + 1] = column < columns && row + 1 < k ? low[n + column] : bf16{};
      }
    }
  });
}

// Fetches the panel that a thread takes next, spread over the `tiles` of the one it works on. No panel: fetches
// nothing.
class NextPanel {
 public:
  NextPanel(const bf16* panel, int k, int tiles)
      : memory_(reinterpret_cast<const char*>(panel)), bytes_(panel_elements(k) * sizeof(bf16)) {
    const size_t pairs = std::max(1, k / 2);
    step_ = (bytes_ / tiles / pairs + 63) / 64 * 64;
    bytes_of_tile_ = step_ * pairs;
  }
  Ahead during(int tile) const {
    const size_t begin = tile * bytes_of_tile_;
    return memory_ != nullptr && begin < bytes_ ? Ahead{memory_ + begin, step_} : Ahead{};
  }

 private:
  const char* memory_;
  size_t bytes_, step_ = 0, bytes_of_tile_ = 0;
};

// One block of rows of one panel into the output, with what is added to it.
inline void finish_tile(const Gemm& g, const float* tile, int row, int rows, int column) {
  const int columns = std::min(kPanelColumns, g.n - column);
  for (int r = 0; r < rows; ++r) {
    const size_t offset = (row + r) * g.out_stride + column;
    for (int c = 0; c < columns; c += kLanes) {
      const int lanes = std::min(kLanes, columns - c);
      Float value = load(tile + r * kPanelColumns + c);
      if (lanes == kLanes) {
        if (g.residual) value = value + load(g.residual + offset + c);
        if (g.accumulate) value = load(g.out_float + offset + c) + value;
        if (g.out_bf16)
          store(g.out_bf16 + offset + c, value);
        else
          store(g.out_float + offset + c, value);
      } else {
        if (g.residual) value = value + load_part(g.residual + offset + c, lanes);
        if (g.accumulate) value = load_part(g.out_float + offset + c, lanes) + value;
        if (g.out_bf16)
          store_part(g.out_bf16 + offset + c, value, lanes);
        else
          store_part(g.out_float + offset + c, value, lanes);
      }
    }
  }
}

inline void gemm(ThreadPool& threads, const Gemm& g) {
  const int chunk_rows = g.a_packed ? kPanelColumns : kTileRows * 16;
  const int panels = (g.n + kPanelColumns - 1) / kPanelColumns;
  const int chunks = (g.m + chunk_rows - 1) / chunk_rows;
  const size_t panel_stride = g.b_panel_stride != 0 ? g.b_panel_stride : panel_elements(g.k);
  // Neighbouring tasks share their rows, so that a thread keeps them in its cache while panels change.
  threads.run(panels * chunks, [&](int task) {
    const int panel = task % panels, chunk = task / panels;
    const int begin = chunk * chunk_rows, end = std::min(g.m, begin + chunk_rows);
    const int later = panel + threads.threads();
    const NextPanel next(later < panels ? g.b + later * panel_stride : nullptr, g.k,
                         (end - begin + kTileRows - 1) / kTileRows);
    const LeftRows a = g.a_packed ? LeftRows{g.a + chunk * panel_elements(g.k), 2, kPanelColumns * 2}
                                  : LeftRows{g.a + begin * g.a_stride, g.a_stride};
    alignas(64) float tile[kTileRows * kPanelColumns];
    for (int row = begin; row < end; row += kTileRows) {
      const int rows = std::min(kTileRows, end - row);
      product_tile({a.start + (row - begin) * a.row_stride, a.row_stride, a.pair_stride}, rows,
                   g.b + panel * panel_stride, g.k, tile, kPanelColumns * 2, next.during((row - begin) / kTileRows));
      finish_tile(g, tile, row, rows, panel * kPanelColumns);
    }
  });
}

}  // namespace tandem::kernels::TANDEM_ISA
