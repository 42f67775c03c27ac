// Blocks of bf16 as E4M3 with a power of two as scale, and back: kernels/quantize.h, on bits as
// kernels/cpu/quantize.inl does it. A block is one thread's, a weight's block of 128 x 128 is a block of threads'.
#pragma once

#include "kernels/cuda/execution.cuh"

namespace tandem::kernels::cuda {

constexpr int kFp8Block = 128, kMxfp8Block = 32;
constexpr uint8_t kNanScale = 0xff, kNanCode = 0x7f;

TANDEM_HD int32_t magnitude_of(uint16_t bf16_bits) { return bf16_bits & 0x7fff; }

// E8M0 for the largest magnitude of a block: its exponent less 8, one more where the mantissa is above 1.75.
TANDEM_HD uint8_t scale_code(int32_t largest) {
  if (largest >= 0x7f80) return kNanScale;
  const int32_t up = (largest + 31) >> 7;
  return static_cast<uint8_t>(up > 9 ? up - 8 : 1);
}

// x / scale as E4M3, to nearest, ties to even.
TANDEM_HD uint8_t code_of(uint16_t x, uint8_t scale) {
  if (scale == kNanScale) return kNanCode;
  const uint32_t bits = bits_of(from_bf16(x) * float_of(static_cast<uint32_t>(254 - scale) << 23));
  const uint32_t magnitude = bits & 0x7fffffffu;
  const float shifter = 16384.0f;  // adding it leaves whole multiples of the least denormal, 2^-9, in the low bits
  const uint32_t code = magnitude < bits_of(0x1p-6f)
                            ? bits_of(float_of(magnitude) + shifter) - bits_of(shifter)
                            : (magnitude - (120u << 23) + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20;
  return static_cast<uint8_t>(code | ((bits >> 24) & 0x80u));
}

TANDEM_HD float from_e4m3(uint8_t code) {
  const uint32_t magnitude = code & 0x7fu;
  if (magnitude == 0x7f) return not_a_number();
  const float value =
      magnitude < 8 ? static_cast<float>(magnitude) * 0x1p-9f : float_of((magnitude << 20) + (120u << 23));
  return code & 0x80u ? -value : value;
}
TANDEM_HD float from_e8m0(uint8_t code) { return code == 0 ? 0x1p-127f : float_of(static_cast<uint32_t>(code) << 23); }

// What a code and its scale stand for, as bf16.
TANDEM_HD uint16_t expanded(uint8_t code, uint8_t scale) {
  const bool nan = scale == kNanScale || (code & 0x7f) == kNanCode;
  return nan ? static_cast<uint16_t>(0x7fc0) : to_bf16_bits(from_e4m3(code) * from_e8m0(scale));
}

// The scale of `count` elements value(0), value(1), ....
template <typename Value>
TANDEM_HD uint8_t scale_of_run(const Value& value, int count) {
  int32_t largest = 0;
  for (int i = 0; i < count; ++i) {
    const int32_t magnitude = magnitude_of(value(i));
    if (magnitude > largest) largest = magnitude;
  }
  return scale_code(largest);
}
// The same elements into codes that lie densely; gives their scale.
template <typename Value>
TANDEM_HD uint8_t quantize_run(const Value& value, int count, uint8_t* codes) {
  const uint8_t scale = scale_of_run(value, count);
  for (int i = 0; i < count; ++i) codes[i] = code_of(value(i), scale);
  return scale;
}
TANDEM_HD int block_length(int64_t block, int size, int count) {
  const int64_t left = count - block * size;
  return static_cast<int>(left < size ? left : size);
}

// Neighbouring threads take neighbouring columns.
struct QuantizeColumnBlock {
  TandemCudaQuantize q;
  TANDEM_HD void operator()(int64_t i) const {
    const int64_t column = i % q.columns, block = i / q.columns, first = block * q.block;
    const uint16_t* x = q.x + first * q.stride + column;
    q.column_scales[column * pieces(q.rows, q.block) + block] =
        quantize_run([&](int at) { return x[at * q.stride]; }, block_length(block, q.block, q.rows),
                     q.by_column + column * q.rows + first);
  }
};

// A thread finds the largest of its column, all of them the largest of the columns.
struct QuantizeWeightKernel {
  static constexpr int kThreads = kFp8Block;
  struct Shared {
    int32_t largest[kThreads];
  };
  using Private = Nothing;
  TandemCudaQuantizeWeight w;

  TANDEM_HD bool run(int64_t block, int phase, int thread, Shared& shared, Private&) const {
    const int64_t across = pieces(w.columns, kFp8Block);
    const int64_t top = block / across * kFp8Block, left = block % across * kFp8Block;
    const int height = block_length(block / across, kFp8Block, w.rows);
    const bool there = left + thread < w.columns;
    const uint16_t* x = w.weight + top * w.columns + left + thread;
    if (phase == 0) {
      int32_t largest = 0;
      for (int row = 0; there && row < height; ++row) {
        const int32_t magnitude = magnitude_of(x[static_cast<int64_t>(row) * w.columns]);
        if (magnitude > largest) largest = magnitude;
      }
      shared.largest[thread] = largest;
      return true;
    }
    int32_t largest = 0;
    for (int i = 0; i < kThreads; ++i) {
      if (shared.largest[i] > largest) largest = shared.largest[i];
    }
    const uint8_t scale = scale_code(largest);
    if (thread == 0) w.scales[block] = scale;
    for (int row = 0; there && row < height; ++row) {
      const int64_t at = static_cast<int64_t>(row) * w.columns;
      w.out[top * w.columns + left + thread + at] = code_of(x[at], scale);
    }
    return false;
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaQuantizeWeight& w) {
  if (!w.weight || !w.out || !w.scales) return kTandemCudaNull;
  if (w.rows < 0 || w.columns < 0) return kTandemCudaSize;
  return start(execution, QuantizeWeightKernel{w}, pieces(w.rows, kFp8Block) * pieces(w.columns, kFp8Block));
}

struct ExpandElement {
  TandemCudaExpand e;
  TANDEM_HD void operator()(int64_t i) const {
    const int64_t row = i / e.columns, column = i % e.columns;
    const uint8_t scale = e.scales[row / e.block_rows * pieces(e.columns, e.block) + column / e.block];
    e.out[i] = expanded(e.codes[i], scale);
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaExpand& e) {
  if (!e.codes || !e.scales || !e.out) return kTandemCudaNull;
  if (e.rows < 0 || e.columns < 0) return kTandemCudaSize;
  if (e.block != kFp8Block && e.block != kMxfp8Block) return kTandemCudaShape;
  if (e.block_rows != 1 && e.block_rows != kFp8Block) return kTandemCudaShape;
  return each_element(execution, static_cast<int64_t>(e.rows) * e.columns, ExpandElement{e});
}

}  // namespace tandem::kernels::cuda
