// The matrix product made of product.inl, and the packing of its right side.
//
// Blocking: a panel (64 columns, all of K) stays in the second-level cache while blocks of kTileRows rows pass over it.
// Decode (few rows) streams each panel once from memory.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/packed_codes.inl"
#include "kernels/cpu/product.inl"

namespace tandem::kernels::TANDEM_ISA {

inline size_t panel_elements(int k) { return size_t{kPanelColumns} * 2 * ((k + 1) / 2); }

template <typename T>
void pack(ThreadPool& threads, const T* weight, int n, int k, T* packed);

template <>
inline void pack(ThreadPool& threads, const float* weight, int n, int k, float* packed) {
  const int panels = (n + kPanelColumns - 1) / kPanelColumns;
  threads.run(panels, [&](int panel) {
    float* target = packed + panel * panel_elements(k);
    const size_t first = static_cast<size_t>(panel) * kPanelColumns;
    for (int column = 0; column < kPanelColumns; ++column) {
      const bool padding = first + column >= static_cast<size_t>(n);
      const float* source = weight + (first + column) * k;
      for (int i = 0; i < k; ++i) target[size_t{kPanelColumns} * i + column] = padding ? 0 : source[i];
    }
  });
}

template <>
inline void pack(ThreadPool& threads, const bf16* weight, int n, int k, bf16* packed) {
  const int panels = (n + kPanelColumns - 1) / kPanelColumns;
  threads.run(panels, [&](int panel) {
    uint32_t* target = reinterpret_cast<uint32_t*>(packed + panel * panel_elements(k));
    const int columns = std::min(kPanelColumns, n - panel * kPanelColumns);
    // Sixteen pairs of k at a time, so that reads and writes both go by whole cache lines.
    for (int pair = 0; pair < k / 2; pair += 16) {
      const int pairs = std::min(16, k / 2 - pair);
      if (pairs == 16 && columns == kPanelColumns) {
        for (int column = 0; column < kPanelColumns; column += kLanes) {
          transpose_pairs(weight + (static_cast<size_t>(panel) * kPanelColumns + column) * k + pair * 2, k,
                          reinterpret_cast<bf16*>(target + pair * kPanelColumns + column), kPanelColumns * 2);
        }
        continue;
      }
      for (int column = 0; column < kPanelColumns; ++column) {
        const bf16* source = weight + (size_t{static_cast<size_t>(panel)} * kPanelColumns + column) * k + pair * 2;
        for (int i = 0; i < pairs; ++i) {
          target[(pair + i) * kPanelColumns + column] = column < columns ? load_pair(source + i * 2) : 0;
        }
      }
    }
  });
}

inline void pack_transposed_panel(const bf16* weight, int k, int n, int panel, bf16* packed) {
  bf16* target = packed + panel * panel_elements(k);
  const int first = panel * kPanelColumns;
  const int columns = std::min(kPanelColumns, n - first);
  for (int row = 0; row < k; row += 2) {
    const bf16* low = weight + static_cast<size_t>(row) * n + first;
    bf16* pair = target + row * kPanelColumns;
    if (columns == kPanelColumns && row + 1 < k) {
      for (int column = 0; column < kPanelColumns; column += kLanes) {
        pair_up(low + column, low + n + column, pair + column * 2);
      }
      continue;
    }
    for (int column = 0; column < kPanelColumns; ++column) {
      pair[column * 2] = column < columns ? low[column] : bf16{};
      pair[column * 2 + 1] = column < columns && row + 1 < k ? low[n + column] : bf16{};
    }
  }
}

inline void pack_transposed_panel(const float* weight, int k, int n, int panel, float* packed) {
  float* target = packed + panel * panel_elements(k);
  const int first = panel * kPanelColumns;
  const int columns = std::min(kPanelColumns, n - first);
  for (int row = 0; row < (k + 1) / 2 * 2; ++row, target += kPanelColumns) {
    const int there = row < k ? columns : 0;
    std::copy_n(weight + static_cast<size_t>(row) * n + first, there, target);
    std::fill_n(target + there, kPanelColumns - there, 0.0f);
  }
}

template <typename T>
void pack_transposed(ThreadPool& threads, const T* weight, int k, int n, T* packed) {
  const int panels = (n + kPanelColumns - 1) / kPanelColumns;
  threads.run(panels, [&](int panel) { pack_transposed_panel(weight, k, n, panel, packed); });
}

// Fetches the panel that a thread takes next, spread over the `tiles` of the one it works on. No panel: fetches
// nothing.
class NextPanel {
 public:
  template <typename T>
  NextPanel(const T* panel, int k, int tiles)
      : memory_(reinterpret_cast<const char*>(panel)), bytes_(panel_elements(k) * sizeof(T)) {
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
template <typename T>
void finish_tile(const BasicGemm<T>& g, const float* tile, int row, int rows, int column) {
  const int columns = std::min(kPanelColumns, g.n - column);
  for (int r = 0; r < rows; ++r) {
    const size_t offset = (row + r) * g.out_stride + column;
    for (int c = 0; c < columns; c += kLanes) {
      const int lanes = std::min(kLanes, columns - c);
      Float value = load(tile + r * kPanelColumns + c);
      if (lanes == kLanes) {
        if (g.bias) value = value + load(g.bias + column + c);
        if (g.residual) value = value + load(g.residual + offset + c);
        if (g.accumulate) value = load(g.out_float + offset + c) + value;
        if (g.out)
          store(g.out + offset + c, value);
        else
          store(g.out_float + offset + c, value);
      } else {
        if (g.bias) value = value + load_part(g.bias + column + c, lanes);
        if (g.residual) value = value + load_part(g.residual + offset + c, lanes);
        if (g.accumulate) value = load_part(g.out_float + offset + c, lanes) + value;
        if (g.out)
          store_part(g.out + offset + c, value, lanes);
        else
          store_part(g.out_float + offset + c, value, lanes);
      }
    }
  }
}

template <typename T>
RightSide<T> panel_of(const BasicGemm<T>& g, int panel) {
  if (g.b.codes != nullptr) return RightSide<T>(g.b.codes + panel * coded_panel_bytes(g.k));
  return g.b.panels + panel * (g.b_panel_stride != 0 ? g.b_panel_stride : panel_elements(g.k));
}

// Rows that a task takes of one panel; those of a packed left side are a panel of their own.
template <typename T>
int chunk_rows(const BasicGemm<T>& g) {
  return g.a_packed ? kPanelColumns : kTileRows * 16;
}

// The left side of rows [begin, end) of the output, a chunk of them.
template <typename T>
LeftRows<T> left_rows(const BasicGemm<T>& g, int begin) {
  constexpr size_t kBeside = kSideBySide<T>;
  if (g.a_packed) return {g.a + begin / kPanelColumns * panel_elements(g.k), kBeside, kPanelColumns * kBeside};
  return {g.a + begin * g.a_stride, g.a_stride};
}

// Rows [begin, end) of the output in the columns of a panel of codes. A part of k at a time becomes bf16, small enough
// for the first-level cache, and all rows go over it; their sums wait in between as they are.
inline void multiply_codes(const Gemm& g, int panel, int begin, int end, const std::byte* next) {
  constexpr int kMostDepth = 8 * kCodedDepth;
  const int depth_at_once = end - begin > kTileRows ? kMostDepth : kMostDepth / 2;
  alignas(64) bf16 part[kMostDepth * kPanelColumns];
  alignas(64) float tiles[16][kTileRows * kPanelColumns];
  LeftRows<bf16> a = left_rows(g, begin);
  const std::byte* block = panel_of(g, panel).codes;
#if defined(__AVX512VBMI__) && !defined(TANDEM_TILES)
  if (const int rows = end - begin; rows <= kFewRows) {
    constexpr std::array kProducts = {product_of_codes<1>, product_of_codes<2>, product_of_codes<3>,
                                      product_of_codes<4>};
    kProducts[rows - 1](a, block, g.k, tiles[0]);
    return finish_tile(g, tiles[0], begin, rows, panel * kPanelColumns);
  }
#endif
  for (int first = 0; first < g.k; first += depth_at_once, a.start += depth_at_once / 2 * a.pair_stride) {
    const int depth = std::min(depth_at_once, g.k - first);
    for (int at = 0; at < depth; at += kCodedDepth, block += kCodedBlock) {
      expand_block(block, next, part + at * kPanelColumns);
      if (next != nullptr) next += kCodedBlock;
    }
    for (int row = begin; row < end; row += kTileRows) {
      product_tile({a.start + (row - begin) * a.row_stride, a.row_stride, a.pair_stride},
                   std::min(kTileRows, end - row), part, depth, tiles[(row - begin) / kTileRows], kPanelColumns * 2, {},
                   first > 0);
    }
  }
  for (int row = begin; row < end; row += kTileRows)
    finish_tile(g, tiles[(row - begin) / kTileRows], row, std::min(kTileRows, end - row), panel * kPanelColumns);
}

// Rows [begin, end) of the output, a chunk of them, in the columns of one panel. `next` is fetched meanwhile.
template <typename T>
void multiply_panel(const BasicGemm<T>& g, int panel, int begin, int end, RightSide<T> next_panel) {
  if constexpr (sizeof(T) == sizeof(bf16)) {
    if (g.b.codes != nullptr) return multiply_codes(g, panel, begin, end, next_panel.codes);
  }
  const NextPanel next(next_panel.panels, g.k, (end - begin + kTileRows - 1) / kTileRows);
  const LeftRows<T> a = left_rows(g, begin);
  const T* const b = panel_of(g, panel).panels;
  alignas(64) float tile[kTileRows * kPanelColumns];
  for (int row = begin; row < end; row += kTileRows) {
    const int rows = std::min(kTileRows, end - row);
    product_tile(LeftRows<T>{a.start + (row - begin) * a.row_stride, a.row_stride, a.pair_stride}, rows, b, g.k, tile,
                 kPanelColumns * kSideBySide<T>, next.during((row - begin) / kTileRows));
    finish_tile(g, tile, row, rows, panel * kPanelColumns);
  }
}

template <typename T>
void gemm(ThreadPool& threads, const BasicGemm<T>& g) {
  const int panels = (g.n + kPanelColumns - 1) / kPanelColumns;
  const int chunks = (g.m + chunk_rows(g) - 1) / chunk_rows(g);
  // Neighbouring tasks share their rows, so that a thread keeps them in its cache while panels change.
  threads.run(panels * chunks, [&](int task) {
    const int panel = task % panels, begin = task / panels * chunk_rows(g), later = panel + threads.threads();
    multiply_panel(g, panel, begin, std::min(g.m, begin + chunk_rows(g)),
                   later < panels ? panel_of(g, later) : RightSide<T>());
  });
}

}  // namespace tandem::kernels::TANDEM_ISA
