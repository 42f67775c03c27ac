// Panels of E4M3 codes (kernels/gemm.h), and the bf16 that they stand for, made just before it is multiplied.
//
// A panel is a list of blocks of 32 k: 64 exponents, one for each column, then codes [16][64][2], in the order of a
// bf16 panel but for what `place_of_code` says. A code's bf16 has an exponent of its own, to which that of the block is
// added; zeros stay zeros. What bf16's normal numbers do not hold is not packed.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/product.inl"
#include "kernels/cpu/simd.h"

namespace tandem::kernels::TANDEM_ISA {

constexpr size_t kCodedBlock = kPanelColumns + size_t{kCodedDepth} * kPanelColumns;

inline size_t coded_panel_bytes(int k) { return kCodedBlock * ((k + kCodedDepth - 1) / kCodedDepth); }

constexpr int kLeastShift = -126 + 9, kLargestShift = 127 - 8;  // of E4M3's least and largest exponents in bf16

// Where the code of a column and an element of its pair lies in the 128 bytes of a pair of k.
constexpr int place_of_code(int column, int element) {
  const int natural = column * 2 + element;
#if defined(__AVX512VBMI__)
  // Bytes are joined to pairs of bytes within sixteen of them: from eight codes in the lower half of each sixteen and
  // from eight in the upper come the first half of 64 codes, and the second.
  const int eight = natural / 8 % 8;
  return natural / 64 * 64 + (eight < 4 ? eight * 2 : eight * 2 - 7) * 8 + natural % 8;
#else
  return natural;
#endif
}

// False where a value of the panel is not a normal number of bf16.
inline bool pack_codes_panel(const PackCodes& p, int panel) {
  std::byte* block = p.packed + panel * coded_panel_bytes(p.k);
  const size_t scale_columns = scale_blocks(p.k, p.block);
  const int columns = std::min(kPanelColumns, p.n - panel * kPanelColumns);
  for (int first = 0; first < p.k; first += kCodedDepth, block += kCodedBlock) {
    const int depth = std::min(kCodedDepth, p.k - first);
    std::memset(block, 0, kCodedBlock);
    for (int column = 0; column < columns; ++column) {
      const size_t row = static_cast<size_t>(panel) * kPanelColumns + column;
      const e4m3* codes = p.codes + row * p.k + first;
      std::byte* target = block + kPanelColumns;
      bool zero = true;
      for (int i = 0; i < depth; ++i) {
        const int magnitude = codes[i].bits & 0x7f;
        if (magnitude == 0x7f) return false;
        zero = zero && magnitude == 0;
        target[i / 2 * kPanelColumns * 2 + place_of_code(column, i % 2)] = static_cast<std::byte>(codes[i].bits);
      }
      if (zero) continue;
      const int shift = p.scales[row / p.block_rows * scale_columns + first / p.block].bits - 127;
      if (shift < kLeastShift || shift > kLargestShift) return false;
      block[column] = static_cast<std::byte>(shift);
    }
  }
  return true;
}

inline bool pack_codes(ThreadPool& threads, const PackCodes& p) {
  std::atomic<bool> all = true;
  threads.run((p.n + kPanelColumns - 1) / kPanelColumns, [&](int panel) {
    if (!pack_codes_panel(p, panel)) all = false;
  });
  return all;
}

// The bf16 of magnitudes without their block's exponent; of the last, NaN, nothing is asked.
constexpr std::array<uint16_t, 128> magnitudes_in_bf16() {
  std::array<uint16_t, 128> table{};
  for (uint8_t i = 0; i < 127; ++i) table[i] = to_bf16(to_float(e4m3{i})).bits;
  return table;
}
inline constexpr std::array<uint16_t, 128> kMagnitudes = magnitudes_in_bf16();

#if defined(__AVX512VBMI__)
template <int Shift>
constexpr std::array<uint8_t, 128> bytes_of_magnitudes() {
  std::array<uint8_t, 128> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(kMagnitudes[i] >> Shift);
  return bytes;
}
alignas(64) inline constexpr std::array<uint8_t, 128> kLowBytes = bytes_of_magnitudes<0>(),
                                                      kHighBytes = bytes_of_magnitudes<8>();

// What makes bf16 of the codes of one block.
struct Expansion {
  __m512i low[2], high[2], shifts[4];  // of sixteen columns each, for both elements of their pairs

  TANDEM_INLINE Expansion() {
    for (int part = 0; part < 2; ++part) {
      low[part] = _mm512_load_si512(&kLowBytes[part * 64]);
      high[part] = _mm512_load_si512(&kHighBytes[part * 64]);
    }
  }
  // Begins a block; gives its codes.
  TANDEM_INLINE const std::byte* begin(const std::byte* block) {
#pragma GCC unroll 4
    for (int unit = 0; unit < 4; ++unit) {
      const __m128i columns = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + unit * kLanes));
      const __m256i twice = _mm256_set_m128i(_mm_unpackhi_epi8(columns, columns), _mm_unpacklo_epi8(columns, columns));
      shifts[unit] = _mm512_slli_epi16(_mm512_cvtepi8_epi16(twice), 7);
    }
    return block + kPanelColumns;
  }
  // The 64 codes of half the columns, a pair of k.
  TANDEM_INLINE void expand(const std::byte* from, int half, __m512i& first, __m512i& second) const {
    const __m512i codes = _mm512_loadu_si512(from);
    const __m512i lower = _mm512_permutex2var_epi8(low[0], codes, low[1]);
    const __m512i upper = _mm512_permutex2var_epi8(high[0], codes, high[1]) | (codes & _mm512_set1_epi8(-128));
    first = scaled(_mm512_unpacklo_epi8(lower, upper), shifts[half * 2]);
    second = scaled(_mm512_unpackhi_epi8(lower, upper), shifts[half * 2 + 1]);
  }
  static TANDEM_INLINE __m512i scaled(__m512i value, __m512i shift) {
    return _mm512_mask_add_epi16(value, _mm512_test_epi16_mask(value, _mm512_set1_epi16(0x7fff)), value, shift);
  }
};

// One block into bf16 [16][64][2]; `next` is the block that is needed later, fetched meanwhile, or null. A function by
// itself, since its constants would take registers from the product that follows.
__attribute__((noinline)) inline void expand_block(const std::byte* block, const std::byte* next, bf16* out) {
  Expansion expansion;
  block = expansion.begin(block);
  for (int pair = 0; pair < kCodedDepth / 2; ++pair) {
    for (int half = 0; half < 2; ++half, block += 64, out += 64) {
      if (next != nullptr) _mm_prefetch(reinterpret_cast<const char*>(next += 64), _MM_HINT_T1);
      __m512i first, second;
      expansion.expand(block, half, first, second);
      _mm512_storeu_si512(out, first);
      _mm512_storeu_si512(out + 32, second);
    }
  }
}

#if !defined(TANDEM_TILES)
// Few rows: codes become bf16 in registers, and are multiplied there. The chains are those of product_tile. Codes are
// fetched not far ahead: asking for the next panel, as bf16 does, leaves a core waiting for half of the time.
constexpr int kFewRows = 4;
constexpr size_t kFetchedAhead = 2048;

template <int Rows>
__attribute__((noinline)) void product_of_codes(LeftRows<bf16> rows, const std::byte* block, int k, float* tile) {
  Float sums[Rows][kPanelUnits] = {};
  Expansion expansion;
  const bf16* a = rows.start;
  for (int first = 0; first < k; first += kCodedDepth, block += kCodedBlock) {
    const std::byte* codes = expansion.begin(block);
    for (int pair = 0; pair < std::min(kCodedDepth, k - first) / 2; ++pair, codes += 128, a += rows.pair_stride) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        _mm_prefetch(reinterpret_cast<const char*>(codes + half * 64 + kFetchedAhead), _MM_HINT_T0);
        __m512i columns[2];
        expansion.expand(codes + half * 64, half, columns[0], columns[1]);
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) {
          const uint32_t a_pair = load_pair(a + r * rows.row_stride);
#pragma GCC unroll 2
          for (int u = 0; u < 2; ++u) sums[r][half * 2 + u] = dot2(sums[r][half * 2 + u], a_pair, (Bits)columns[u]);
        }
      }
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int unit = 0; unit < kPanelUnits; ++unit) store(tile + r * kPanelColumns + unit * kLanes, sums[r][unit]);
  }
}
#endif
#else
// As above, sixteen codes at a time: beyond E4M3's denormals a code's bits are those of bf16, moved and with another
// bias.
__attribute__((noinline)) inline void expand_block(const std::byte* block, const std::byte* next, bf16* out) {
  alignas(16) static constexpr auto kDenormals = [] {
    std::array<uint16_t, 8> table{};
    for (size_t i = 0; i < table.size(); ++i) table[i] = kMagnitudes[i];
    return table;
  }();
  const __m256i denormals =
      _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(kDenormals.data())));
  const auto all = [](int value) { return _mm256_set1_epi16(static_cast<short>(value)); };
  __m256i shifts[8];
  for (int unit = 0; unit < 8; ++unit) {
    const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(block + unit * 8));
    shifts[unit] = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_unpacklo_epi8(eight, eight)), 7);
  }
  block += kPanelColumns;
  for (int pair = 0; pair < kCodedDepth / 2; ++pair) {
    if (next != nullptr) {
      _mm_prefetch(reinterpret_cast<const char*>(next += 64), _MM_HINT_T1);
      _mm_prefetch(reinterpret_cast<const char*>(next += 64), _MM_HINT_T1);
    }
    for (int unit = 0; unit < 8; ++unit, block += 16, out += 16) {
      const __m256i codes = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block)));
      const __m256i magnitude = codes & all(0x7f), sign = _mm256_slli_epi16(codes & all(0x80), 8);
      const __m256i normal = _mm256_add_epi16(_mm256_slli_epi16(magnitude, 4), all(120 << 7));
      const __m256i lookup =
          _mm256_shuffle_epi8(denormals, _mm256_add_epi16(_mm256_mullo_epi16(magnitude, all(0x202)), all(0x100)));
      __m256i value = _mm256_blendv_epi8(lookup, normal, _mm256_cmpgt_epi16(magnitude, all(7)));
      value = _mm256_add_epi16(value, _mm256_andnot_si256(_mm256_cmpeq_epi16(magnitude, all(0)), shifts[unit]));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), value | sign);
    }
  }
}
#endif

}  // namespace tandem::kernels::TANDEM_ISA
