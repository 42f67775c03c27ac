// Blocks of a row that become E4M3, or what E4M3 makes of them, by warps: eight elements a lane, so that a warp reads
// and writes whole lines of memory. The largest of a block does not depend on an order, so the bits are those of the
// loops in quantize.cuh.
#pragma once

#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/warps.cuh"

namespace tandem::kernels::cuda {

constexpr int kOfLane = 8;  // elements

// Eight elements from `from` on, of which `count` are there; the rest is 0.
struct LaneElements {
  uint16_t values[kOfLane];
};
TANDEM_HD LaneElements lane_elements(const uint16_t* from, int count) {
  LaneElements e;
#ifdef __CUDA_ARCH__
  if (count >= kOfLane && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
    const uint4 words = *reinterpret_cast<const uint4*>(from);
    const uint32_t each[4] = {words.x, words.y, words.z, words.w};
    TANDEM_UNROLL
    for (int i = 0; i < kOfLane; ++i) e.values[i] = static_cast<uint16_t>(each[i / 2] >> (i % 2 * 16));
    return e;
  }
#endif
  TANDEM_UNROLL
  for (int i = 0; i < kOfLane; ++i) e.values[i] = i < count ? from[i] : uint16_t{0};
  return e;
}

// Put(row, block of the row, first element, how many are there, scale, elements) for eight elements at a time.
template <typename Put>
struct CodeRowsKernel {
  static constexpr int kWarps = 4;
  using Shared = Nothing;
  using Private = Nothing;
  Put put;
  const uint16_t* x;
  int64_t stride;
  int rows, columns, block;

  TANDEM_HD int lanes() const { return block / kOfLane; }  // of a block: 16 or 4
  TANDEM_HD int64_t across() const { return pieces(columns, block); }
  TANDEM_HD int64_t blocks() const { return pieces(rows * across(), kWarps * (kWarp / lanes())); }
  TANDEM_HD bool run(int64_t block_of_warps, int, int warp, Shared&, Private&) const {
    Registers<LaneElements, 1> elements;
    Registers<float, 1> largest;
    const int64_t first_block = (block_of_warps * kWarps + warp) * (kWarp / lanes());
    each_lane([&](int lane) {
      const int64_t at = first_block + lane / lanes();
      const int64_t row = at / across(), first = first_of(at, lane);
      const int count = row < rows ? there(first) : 0;
      elements.at(lane, 0) = lane_elements(count > 0 ? x + row * stride + first : x, count);
      int32_t magnitude = 0;
      TANDEM_UNROLL
      for (int i = 0; i < kOfLane; ++i) {
        const int32_t next = magnitude_of(elements.at(lane, 0).values[i]);
        magnitude = next > magnitude ? next : magnitude;
      }
      largest.at(lane, 0) = static_cast<float>(magnitude);
    });
    join_lanes(largest, 0, lanes(), [](float a, float b) { return larger(a, b); });
    each_lane([&](int lane) {
      const int64_t at = first_block + lane / lanes();
      const int64_t row = at / across(), first = first_of(at, lane);
      if (row >= rows || there(first) <= 0) return;
      put(row, at, first, there(first), scale_code(static_cast<int32_t>(largest.at(lane, 0))), elements.at(lane, 0));
    });
    return false;
  }

 private:
  TANDEM_HD int64_t first_of(int64_t at, int lane) const { return at % across() * block + lane % lanes() * kOfLane; }
  TANDEM_HD int there(int64_t first) const {
    const int64_t left = columns - first;
    return static_cast<int>(left < kOfLane ? left : kOfLane);
  }
};

struct PutCodes {
  uint8_t* codes;   // [rows][columns]
  uint8_t* scales;  // [blocks]
  int columns, block;
  TANDEM_HD void operator()(int64_t row, int64_t at, int64_t first, int count, uint8_t scale,
                            const LaneElements& elements) const {
    if (first % block == 0) scales[at] = scale;
    uint8_t* const to = codes + row * columns + first;
    uint8_t made[kOfLane];
    TANDEM_UNROLL
    for (int i = 0; i < kOfLane; ++i) made[i] = code_of(elements.values[i], scale);
#ifdef __CUDA_ARCH__
    if (count == kOfLane && reinterpret_cast<uintptr_t>(to) % 8 == 0) {
      const auto four_of = [&](int i) { return made[i] | made[i + 1] << 8 | made[i + 2] << 16 | made[i + 3] << 24; };
      *reinterpret_cast<uint2*>(to) = make_uint2(four_of(0), four_of(4));
      return;
    }
#endif
    TANDEM_UNROLL
    for (int i = 0; i < kOfLane; ++i) {
      if (i < count) to[i] = made[i];
    }
  }
};

struct PutRounded {
  uint16_t* out;  // [rows][columns]
  int columns;
  TANDEM_HD void operator()(int64_t row, int64_t, int64_t first, int count, uint8_t scale,
                            const LaneElements& elements) const {
    uint16_t* const to = out + row * columns + first;
    uint16_t made[kOfLane];
    TANDEM_UNROLL
    for (int i = 0; i < kOfLane; ++i) made[i] = expanded(code_of(elements.values[i], scale), scale);
#ifdef __CUDA_ARCH__
    if (count == kOfLane && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
      *reinterpret_cast<uint4*>(to) = make_uint4(pair_of_bf16(made[0], made[1]), pair_of_bf16(made[2], made[3]),
                                                 pair_of_bf16(made[4], made[5]), pair_of_bf16(made[6], made[7]));
      return;
    }
#endif
    TANDEM_UNROLL
    for (int i = 0; i < kOfLane; ++i) {
      if (i < count) to[i] = made[i];
    }
  }
};

template <typename Execution, typename Put>
int code_rows(Execution& execution, const Put& put, const uint16_t* x, int64_t stride, int rows, int columns,
              int block) {
  const CodeRowsKernel<Put> kernel{put, x, stride, rows, columns, block};
  return start(execution, kernel, kernel.blocks());
}

template <typename Execution>
int operate(Execution& execution, const TandemCudaQuantize& q) {
  const bool by_row = q.by_row || q.row_scales, by_column = q.by_column || q.column_scales;
  if (!q.x || (!by_row && !by_column)) return kTandemCudaNull;
  if ((by_row && (!q.by_row || !q.row_scales)) || (by_column && (!q.by_column || !q.column_scales)))
    return kTandemCudaNull;
  if (q.rows < 0 || q.columns < 0) return kTandemCudaSize;
  if (q.block != kFp8Block && q.block != kMxfp8Block) return kTandemCudaShape;
  if (q.stride < q.columns) return kTandemCudaStride;
  return in_order(
      [&] {
        return by_row ? code_rows(execution, PutCodes{q.by_row, q.row_scales, q.columns, q.block}, q.x, q.stride,
                                  q.rows, q.columns, q.block)
                      : 0;
      },
      [&] {
        return by_column ? each_element(execution, q.columns * pieces(q.rows, q.block), QuantizeColumnBlock{q}) : 0;
      });
}

template <typename Execution>
int operate(Execution& execution, const TandemCudaRoundToCodes& r) {
  if (!r.x || !r.out) return kTandemCudaNull;
  if (r.rows < 0 || r.columns < 0) return kTandemCudaSize;
  if (r.block != kFp8Block && r.block != kMxfp8Block) return kTandemCudaShape;
  return code_rows(execution, PutRounded{r.out, r.columns}, r.x, r.columns, r.rows, r.columns, r.block);
}

}  // namespace tandem::kernels::cuda
