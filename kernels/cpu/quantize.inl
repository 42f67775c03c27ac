// Blocks of bf16 as E4M3 with a power of two as scale.
//
// Everything is done on bits. The magnitudes of bf16 order as whole numbers do, NaN last, so one maximum finds the
// largest and what is not finite; 448 is 1.75 * 2^8, so a scale is the exponent of the largest magnitude less 8, one
// more where its mantissa is above 1.75; and dividing by a power of two is multiplying by another. Both forms at once
// go by tiles of 128 x 128, read from memory once; the transpose is made of 16 x 16 bytes.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/simd.h"

namespace tandem::kernels::TANDEM_ISA {

constexpr int kQuantizeTile = 128;
constexpr int kQuantizeTilesPerTask = 8;
constexpr int32_t kBf16Infinity = 0x7f80, kNanScale = 0xff, kNanCode = 0x7f;

TANDEM_INLINE __m256i magnitudes(const bf16* source) {
  return _mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source)), _mm256_set1_epi16(0x7fff));
}

TANDEM_INLINE int32_t largest_of(__m256i values) {
  const __m128i eight = _mm_max_epu16(_mm256_castsi256_si128(values), _mm256_extracti128_si256(values, 1));
  const __m128i ones = _mm_set1_epi16(-1);
  return 0xffff - (_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_xor_si128(eight, ones))) & 0xffff);
}

TANDEM_INLINE int32_t select(bool mask, int32_t a, int32_t b) { return mask ? a : b; }

// Codes of E8M0 for the largest magnitudes of blocks; int32_t or Int.
template <typename T>
TANDEM_INLINE T scale_codes(T largest) {
  const T up = (largest + 31) >> 7;
  const T code = select(up > 9, up - 8, T{} + 1);
  return select(largest >= kBf16Infinity, T{} + kNanScale, code);
}
// 1 / scale; of NaN anything.
TANDEM_INLINE Float inverse_of(Int scale_codes) { return (Float)((254 - scale_codes) << 23); }

// To nearest, ties to even; |x| is at most 448 by the choice of the scale.
TANDEM_INLINE Int codes_of(Float x) {
  const Int bits = (Int)x;
  const Int magnitude = bits & 0x7fffffff;
  // The bias is taken off first: the bits of a NaN leave no room to round up.
  const Int normal = (magnitude - (120 << 23) + 0x7ffff + ((magnitude >> 20) & 1)) >> 20;
  // Below the least normal: adding 2^14 leaves whole multiples of the least denormal, 2^-9, in the low bits.
  const Float shifter = broadcast(16384.0f), least_normal = broadcast(0x1p-6f);
  const Int small = (Int)((Float)magnitude + shifter) - (Int)shifter;
  return select(magnitude < (Int)least_normal, small, normal) | ((bits >> 24) & 0x80);
}

// Sixteen elements.
TANDEM_INLINE void convert(const bf16* x, Float inverse, uint8_t* target) {
  const Int codes = codes_of(load(x) * inverse);
#ifdef __AVX512F__
  const __m128i bytes = _mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)codes);
#else
  const auto halves = (__m256i)narrow((Bits)codes);
  const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
#endif
  _mm_storeu_si128(reinterpret_cast<__m128i*>(target), bytes);
}

// The short way of sixteen elements whose codes are normal numbers, of scales from 2^-119 on: rounded to four bits of
// their significand, in whole numbers of 16 bits, bf16 less a bias are codes with four bits more.
constexpr int32_t kLeastShortScale = 8;
struct ShortWay {
  __m256i least;  // the least magnitude whose code is normal
  __m256i bias;   // with what rounds

  explicit ShortWay(__m256i scales)  // codes of E8M0
      : least(_mm256_slli_epi16(_mm256_sub_epi16(scales, _mm256_set1_epi16(6)), 7)),
        bias(_mm256_sub_epi16(_mm256_set1_epi16(7 + (7 << 7)), _mm256_slli_epi16(scales, 7))) {}

  TANDEM_INLINE bool takes(__m256i magnitudes) const {
    const __m256i below = _mm256_cmpgt_epi16(least, magnitudes);
    return _mm256_testz_si256(below, below) != 0;
  }
  // False where one of them has another code; then nothing is written.
  TANDEM_INLINE bool convert(const bf16* x, uint8_t* target) const {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x7fff));
    if (__builtin_expect(!takes(magnitude), 0)) return false;
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(magnitude, 4), _mm256_set1_epi16(1));
    const __m256i code = _mm256_srli_epi16(_mm256_add_epi16(_mm256_add_epi16(magnitude, bias), odd), 4);
    const __m256i all = _mm256_or_si256(code, _mm256_and_si256(_mm256_srli_epi16(bits, 8), _mm256_set1_epi16(0x80)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target),
                     _mm_packus_epi16(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)));
    return true;
  }
  // As convert, to what the codes stand for: the same numbers, rounded.
  TANDEM_INLINE bool round(const bf16* x, bf16* target) const {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x7fff));
    if (__builtin_expect(!takes(magnitude), 0)) return false;
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(magnitude, 4), _mm256_set1_epi16(1));
    const __m256i half = _mm256_add_epi16(odd, _mm256_set1_epi16(7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target),
                        _mm256_and_si256(_mm256_add_epi16(bits, half), _mm256_set1_epi16(-16)));
    return true;
  }
};

// `count` elements, a multiple of 16, of a block with this scale.
TANDEM_INLINE void convert_row(const bf16* x, int count, int32_t scale, uint8_t* codes) {
  if (scale == kNanScale) {
    std::memset(codes, kNanCode, count);
    return;
  }
  const Float inverse = inverse_of(Int{} + scale);
  const ShortWay way(_mm256_set1_epi16(static_cast<short>(scale)));
  for (int i = 0; i < count; i += kLanes) {
    if (scale < kLeastShortScale || !way.convert(x + i, codes + i)) convert(x + i, inverse, codes + i);
  }
}

template <int Block>
TANDEM_INLINE int32_t quantize_block(const bf16* x, uint8_t* codes) {
  __m256i largest = magnitudes(x);
#pragma GCC unroll 8
  for (int i = kLanes; i < Block; i += kLanes) largest = _mm256_max_epu16(largest, magnitudes(x + i));
  const int32_t scale = scale_codes(largest_of(largest));
  convert_row(x, Block, scale, codes);
  return scale;
}

template <int Block>
inline void quantize_row(const bf16* x, int columns, e4m3* out, e8m0* scales) {
  uint8_t* codes = reinterpret_cast<uint8_t*>(out);
  int i = 0;
  for (; i + Block <= columns; i += Block) scales[i / Block].bits = quantize_block<Block>(x + i, codes + i);
  if (i == columns) return;
  bf16 rest[Block] = {};
  uint8_t rest_codes[Block];
  std::memcpy(rest, x + i, (columns - i) * sizeof(bf16));
  scales[i / Block].bits = quantize_block<Block>(rest, rest_codes);
  std::memcpy(codes + i, rest_codes, columns - i);
}

// Sixteen rows of 16 bytes become columns: each round takes every row with the one eight further on.
TANDEM_INLINE void transpose_bytes(const uint8_t* source, size_t stride, uint8_t* target, size_t target_stride) {
  __m128i rows[16], next[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i * stride));
#pragma GCC unroll 4
  for (int round = 0; round < 4; ++round) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      next[2 * i] = _mm_unpacklo_epi8(rows[i], rows[i + 8]);
      next[2 * i + 1] = _mm_unpackhi_epi8(rows[i], rows[i + 8]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) rows[i] = next[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm_storeu_si128(reinterpret_cast<__m128i*>(target + i * target_stride), rows[i]);
}

// The columns of a dense tile: scales[column][block], codes[column][row].
template <int Block>
inline void quantize_columns(const bf16* tile, e8m0* scales, uint8_t* codes) {
  constexpr int kBlocks = kQuantizeTile / Block;
  alignas(64) uint8_t rows[Block * kQuantizeTile];
  for (int block = 0; block < kBlocks; ++block) {
    const bf16* x = tile + block * Block * kQuantizeTile;
    for (int column = 0; column < kQuantizeTile; column += kLanes) {
      __m256i largest = magnitudes(x + column);
      for (int row = 1; row < Block; ++row) {
        largest = _mm256_max_epu16(largest, magnitudes(x + row * kQuantizeTile + column));
      }
      const Int scale = scale_codes((Int)widen((Half)largest));
      const Float inverse = inverse_of(scale);
      const auto scales_of_16 = (__m256i)narrow((Bits)scale);
      const ShortWay way(scales_of_16);
      const __m256i small = _mm256_cmpgt_epi16(_mm256_set1_epi16(kLeastShortScale), scales_of_16);
      const bool all_short = _mm256_testz_si256(small, small) != 0;
      for (int row = 0; row < Block; ++row) {
        const bf16* from = x + row * kQuantizeTile + column;
        uint8_t* to = rows + row * kQuantizeTile + column;
        if (!all_short || !way.convert(from, to)) convert(from, inverse, to);
      }
      for (int lane = 0; lane < kLanes; ++lane) {
        scales[(column + lane) * kBlocks + block].bits = static_cast<uint8_t>(scale[lane]);
        if (scale[lane] != kNanScale) continue;
        for (int row = 0; row < Block; ++row) rows[row * kQuantizeTile + column + lane] = kNanCode;
      }
    }
    for (int column = 0; column < kQuantizeTile; column += 16) {
      for (int row = 0; row < Block; row += 16) {
        transpose_bytes(rows + row * kQuantizeTile + column, kQuantizeTile,
                        codes + column * kQuantizeTile + block * Block + row, kQuantizeTile);
      }
    }
  }
}

// Columns go through dense copies: rows of x, and columns of the transpose, are often a power of two apart, and 128
// lines with such a distance do not stay in a cache. What of a tile is outside is zero, which changes no maximum. Codes
// by columns may go past the caches, whole lines at a time.
template <int Block>
inline void quantize_tile(const Quantize& q, int top, int left, bool past_caches) {
  constexpr int kBlocks = kQuantizeTile / Block;
  const int rows = std::min(kQuantizeTile, q.rows - top), columns = std::min(kQuantizeTile, q.columns - left);
  alignas(64) bf16 tile[kQuantizeTile * kQuantizeTile];
  alignas(64) uint8_t codes[kQuantizeTile * kQuantizeTile];
  e8m0 scales[kQuantizeTile * kBlocks];
  if (rows < kQuantizeTile || columns < kQuantizeTile) std::memset(tile, 0, sizeof tile);
  for (int row = 0; row < rows; ++row) {
    bf16* copy = tile + row * kQuantizeTile;
    std::memcpy(copy, q.x + (top + row) * q.stride + left, columns * sizeof(bf16));
    if (!q.by_row) continue;
    quantize_row<Block>(copy, columns, q.by_row + static_cast<size_t>(top + row) * q.columns + left,
                        q.row_scales + (top + row) * scale_blocks(q.columns, Block) + left / Block);
  }
  quantize_columns<Block>(tile, scales, codes);
  for (int column = 0; column < columns; ++column) {
    const size_t target = left + column;
    std::memcpy(q.column_scales + target * scale_blocks(q.rows, Block) + top / Block, scales + column * kBlocks,
                scale_blocks(rows, Block));
    uint8_t* const to = reinterpret_cast<uint8_t*>(q.by_column) + target * q.rows + top;
    const uint8_t* const from = codes + column * kQuantizeTile;
    if (past_caches && rows == kQuantizeTile) {
      for (int i = 0; i < kQuantizeTile; i += 32)
        _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                            _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i)));
    } else {
      std::memcpy(to, from, rows);
    }
  }
  if (past_caches) _mm_sfence();
}

// Calls tile(top, left) for every tile; a task takes a few that lie side by side.
template <typename Tile>
inline void for_tiles(ThreadPool& threads, int rows, int columns, const Tile& tile) {
  constexpr int kWidth = kQuantizeTile * kQuantizeTilesPerTask;
  const int across = (columns + kWidth - 1) / kWidth, down = (rows + kQuantizeTile - 1) / kQuantizeTile;
  threads.run(across * down, [&](int task) {
    const int begin = task % across * kWidth;
    for (int left = begin; left < std::min(columns, begin + kWidth); left += kQuantizeTile) {
      tile(task / across * kQuantizeTile, left);
    }
  });
}

template <int Block>
inline void quantize_blocks(ThreadPool& threads, const Quantize& q) {
  if (q.by_column) {
    const bool past_caches = goes_past_caches(q.by_column, q.rows, q.columns);
    for_tiles(threads, q.rows, q.columns, [&](int top, int left) { quantize_tile<Block>(q, top, left, past_caches); });
    return;
  }
  constexpr size_t kRows = 16;
  for_pieces(threads, q.rows, kRows, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      quantize_row<Block>(q.x + row * q.stride, q.columns, q.by_row + row * q.columns,
                          q.row_scales + row * scale_blocks(q.columns, Block));
    }
  });
}

inline void quantize(ThreadPool& threads, const Quantize& q) {
  if (q.block == kScaleBlock)
    quantize_blocks<kScaleBlock>(threads, q);
  else
    quantize_blocks<kMicroscaleBlock>(threads, q);
}

// The block of 128 x 128 whose first element is [top][left], or what is left of it.
inline void quantize_weight_block(const bf16* weight, int rows, int columns, e4m3* out, e8m0* scales, int top,
                                  int left) {
  const int height = std::min(kQuantizeTile, rows - top), width = std::min(kQuantizeTile, columns - left);
  const bf16* x = weight + static_cast<size_t>(top) * columns + left;
  uint8_t* codes = reinterpret_cast<uint8_t*>(out) + static_cast<size_t>(top) * columns + left;
  const int whole = width / kLanes * kLanes;
  bf16 rest[kLanes] = {};
  __m256i largest = _mm256_setzero_si256();
  for (int row = 0; row < height; ++row) {
    const bf16* source = x + static_cast<size_t>(row) * columns;
    for (int i = 0; i < whole; i += kLanes) largest = _mm256_max_epu16(largest, magnitudes(source + i));
    std::memcpy(rest, source + whole, (width - whole) * sizeof(bf16));
    largest = _mm256_max_epu16(largest, magnitudes(rest));
  }
  const int32_t scale = scale_codes(largest_of(largest));
  scales[top / kQuantizeTile * scale_blocks(columns, kQuantizeTile) + left / kQuantizeTile].bits =
      static_cast<uint8_t>(scale);
  for (int row = 0; row < height; ++row) {
    const size_t offset = static_cast<size_t>(row) * columns;
    convert_row(x + offset, whole, scale, codes + offset);
    if (whole == width) continue;
    uint8_t rest_codes[kLanes];
    std::memcpy(rest, x + offset + whole, (width - whole) * sizeof(bf16));
    convert_row(rest, kLanes, scale, rest_codes);
    std::memcpy(codes + offset + whole, rest_codes, width - whole);
  }
}

inline void quantize_weight(ThreadPool& threads, const bf16* weight, int rows, int columns, e4m3* out, e8m0* scales) {
  for_tiles(threads, rows, columns,
            [&](int top, int left) { quantize_weight_block(weight, rows, columns, out, scales, top, left); });
}

// Sixteen codes times a scale. Codes below the least normal are whole multiples of 2^-9; through whole numbers, since
// products of denormals are slow on some processors.
TANDEM_INLINE Half expand_codes(const uint8_t* codes, Float scale) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  const Int bits = (Int)widen((Half)_mm256_cvtepu8_epi16(bytes));
  const Int magnitude = bits & 0x7f;
  const Float small = to_float(magnitude) * broadcast(0x1p-9f);
  const Float value = select(magnitude < Int{} + 8, small, (Float)((magnitude << 20) + (120 << 23))) * scale;
  const Bits expanded = (Bits)value | (((Bits)bits & 0x80u) << 24);
  return round_to_bf16(select(magnitude == Int{} + kNanCode, broadcast(NAN), (Float)expanded));
}

inline void expand_row(const uint8_t* codes, int count, e8m0 scale, bf16* out) {
  if (scale == kE8m0Nan) return void(std::fill_n(out, count, bf16{0x7fc0}));
  const Float factor = broadcast(to_float(scale));
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Half values = expand_codes(codes + i, factor);
    std::memcpy(out + i, &values, sizeof values);
  }
  if (i == count) return;
  uint8_t rest[kLanes] = {};
  std::memcpy(rest, codes + i, count - i);
  const Half values = expand_codes(rest, factor);
  std::memcpy(out + i, &values, (count - i) * sizeof(bf16));
}

// Sixteen elements as their codes give them back.
TANDEM_INLINE Half round_sixteen(const bf16* x, Float inverse, Float scale) {
  // codes_of and expand_codes without the codes: the fourth bit of the significand is the last, or 2^-9.
  const Float value = load(x) * inverse;
  const Bits magnitude = (Bits)value & 0x7fffffffu;
  const Float normal = (Float)((magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) & 0xfff00000u);
  const Float shifter = broadcast(16384.0f), small = ((Float)magnitude + shifter) - shifter;
  const Float rounded = select((Float)magnitude < broadcast(0x1p-6f), small, normal);
  return round_to_bf16((Float)((Bits)rounded | ((Bits)value & 0x80000000u)) * scale);
}

// A block of `count` elements, a multiple of 16.
TANDEM_INLINE void round_block(const bf16* x, int count, bf16* out) {
  __m256i largest = magnitudes(x);
  for (int i = kLanes; i < count; i += kLanes) largest = _mm256_max_epu16(largest, magnitudes(x + i));
  const int32_t code = scale_codes(largest_of(largest));
  if (code == kNanScale) return void(std::fill_n(out, count, bf16{0x7fc0}));
  const Float inverse = inverse_of(Int{} + code), scale = broadcast(to_float(e8m0{static_cast<uint8_t>(code)}));
  const ShortWay way(_mm256_set1_epi16(static_cast<short>(code)));
  for (int i = 0; i < count; i += kLanes) {
    if (code >= kLeastShortScale && way.round(x + i, out + i)) continue;
    const Half values = round_sixteen(x + i, inverse, scale);
    std::memcpy(out + i, &values, sizeof values);
  }
}

inline void round_to_codes(ThreadPool& threads, const RoundToCodes& r) {
  for_pieces(threads, r.rows, 16, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      const bf16* x = r.x + row * r.columns;
      bf16* out = r.out + row * r.columns;
      fetch(x + r.columns, r.columns);
      int i = 0;
      for (; i + r.block <= r.columns; i += r.block) round_block(x + i, r.block, out + i);
      if (i == r.columns) continue;
      bf16 rest[kScaleBlock] = {};
      std::memcpy(rest, x + i, (r.columns - i) * sizeof(bf16));
      round_block(rest, r.block, rest);
      std::memcpy(out + i, rest, (r.columns - i) * sizeof(bf16));
    }
  });
}

inline void expand(ThreadPool& threads, const Expand& e) {
  const size_t across = scale_blocks(e.columns, e.block);
  for_pieces(threads, e.rows, 16, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      const uint8_t* codes = reinterpret_cast<const uint8_t*>(e.codes) + row * e.columns;
      for (size_t block = 0; block < across; ++block) {
        const int first = static_cast<int>(block) * e.block;
        expand_row(codes + first, std::min(e.block, e.columns - first), e.scales[row / e.block_rows * across + block],
                   e.out + row * e.columns + first);
      }
    }
  });
}

}  // namespace tandem::kernels::TANDEM_ISA
