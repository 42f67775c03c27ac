// The products of gemm.inl with all operands in registers.
#pragma once

#include <vector>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/product.inl"

namespace tandem::kernels::TANDEM_ISA {

// Runs `rounds` on every thread; the result is the floating-point operations of one round of one thread.
inline double peak_products(ThreadPool& threads, int rounds) {
#ifdef TANDEM_TILES
  alignas(64) static const bf16 zeros[kTileRows * 2 * kLanes] = {};
  threads.run(threads.threads(), [&](int) {
    tiles::configure(kTileRows);
    tiles::load<4>(zeros, sizeof(bf16) * 2 * kLanes);
    tiles::load<5>(zeros, sizeof(bf16) * 2 * kLanes);
    tiles::zero<0>();
    tiles::zero<1>();
    tiles::zero<2>();
    tiles::zero<3>();
    for (int round = 0; round < rounds; ++round) {
      tiles::multiply<0, 4, 5>();
      tiles::multiply<1, 4, 5>();
      tiles::multiply<2, 4, 5>();
      tiles::multiply<3, 4, 5>();
    }
  });
  return 4.0 * kTileRows * kLanes * 2 * kLanes * 2;
#else
  constexpr int kChains = 12;  // enough to hide the latency of two units
#ifdef __AVX512F__
  constexpr int kChainLanes = kLanes;
#ifdef __AVX512BF16__
  constexpr int kOperations = 4;
#else
  constexpr int kOperations = 2;
#endif
  threads.run(threads.threads(), [&](int) {
    __m512 sums[kChains];
    for (auto& sum : sums) sum = _mm512_setzero_ps();
    __m512i ones = _mm512_set1_epi32(0x3f803f80);
    asm volatile("" : "+v"(ones));  // not a constant to the compiler
    for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
      for (int chain = 0; chain < kChains; ++chain) {
#ifdef __AVX512BF16__
        sums[chain] = _mm512_dpbf16_ps(sums[chain], (__m512bh)ones, (__m512bh)ones);
#else
        sums[chain] = _mm512_fmadd_ps((__m512)ones, (__m512)ones, sums[chain]);
#endif
      }
    }
#pragma GCC unroll 12
    for (int chain = 0; chain < kChains; ++chain) asm volatile("" ::"v"(sums[chain]));
  });
#else
  constexpr int kChainLanes = 8, kOperations = 2;
  threads.run(threads.threads(), [&](int) {
    __m256 sums[kChains];
    for (auto& sum : sums) sum = _mm256_setzero_ps();
    __m256 ones = _mm256_set1_ps(1);
    asm volatile("" : "+x"(ones));
    for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
      for (int chain = 0; chain < kChains; ++chain) sums[chain] = _mm256_fmadd_ps(ones, ones, sums[chain]);
    }
#pragma GCC unroll 12
    for (int chain = 0; chain < kChains; ++chain) asm volatile("" ::"x"(sums[chain]));
  });
#endif
  return double{kChains} * kChainLanes * kOperations;
#endif
}

// Reads `count` floats, each once, and does next to nothing with them.
inline float read_all(ThreadPool& threads, const float* values, size_t count) {
  constexpr size_t kPiece = size_t{1} << 18;
  std::vector<float> sums((count + kPiece - 1) / kPiece);
  for_pieces(threads, count, kPiece, [&](size_t begin, size_t end) {
    // Four streams side by side keep more reads under way than one.
    Float parts[4] = {};
    const size_t quarter = (end - begin) / 4;
    for (size_t i = 0; i + kLanes <= quarter; i += kLanes) {
      for (int part = 0; part < 4; ++part) parts[part] = parts[part] + load(values + begin + part * quarter + i);
    }
    sums[begin / kPiece] = sum(parts[0] + parts[1] + parts[2] + parts[3]);
  });
  float total = 0;
  for (const float part : sums) total += part;
  return total;
}

}  // namespace tandem::kernels::TANDEM_ISA
