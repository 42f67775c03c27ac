// The tile registers of AMX as functions: eight of up to 16 rows of 64 bytes. TANDEM_TILES says which: 1, those of the
// processor; 2, a model of them in plain C++, by which machines without them test the code that uses them.
//
// Registers 0 to 3 take sums, 4 the left side, 5 to 7 the right side; configure() sets how many rows the first five
// have. A product adds to sum[m][n] the sum over 16 pairs of left[m][pair] * right[pair][n], as Intel's manual defines
// TDPBF16PS: the first elements of the pairs are one chain of fused multiply-adds and the second ones another, both in
// order; the two are added, then joined to the sum. Denormals count as zero and become zero.
//
// Included once for each instruction set, inside the namespace that TANDEM_ISA names. State is a thread's own.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/simd.h"

namespace tandem::kernels::TANDEM_ISA::tiles {

constexpr int kRegisters = 8, kRows = 16, kBytes = 64;
constexpr int kLeftAndSums = 5;  // registers whose rows are rows of the left side

#if TANDEM_TILES == 1

struct alignas(64) Configuration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(Configuration) == 64);

// How many rows this thread's registers are set to; 0: not yet.
inline thread_local int configured_rows = 0;

inline void configure(int rows) {
  if (rows == configured_rows) return;
  Configuration configuration;
  for (int i = 0; i < kRegisters; ++i) {
    configuration.bytes[i] = kBytes;
    configuration.rows[i] = static_cast<uint8_t>(i < kLeftAndSums ? rows : kRows);
  }
  asm volatile("ldtilecfg %0" ::"m"(configuration) : "memory");
  configured_rows = rows;
}

template <int Register>
TANDEM_INLINE void zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(Register));
}
template <int Register>
TANDEM_INLINE void load(const void* memory, size_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(memory), "r"(stride), "i"(Register) : "memory");
}
template <int Register>
TANDEM_INLINE void store(void* memory, size_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(memory), "r"(stride), "i"(Register) : "memory");
}
template <int Sum, int Left, int Right>
TANDEM_INLINE void multiply() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sum), "i"(Left), "i"(Right));
}

#else

struct Registers {
  int rows[kRegisters] = {};
  alignas(64) uint32_t cells[kRegisters][kRows][kBytes / 4] = {};
};
inline thread_local Registers registers;

inline void configure(int rows) {
  for (int i = 0; i < kRegisters; ++i) registers.rows[i] = i < kLeftAndSums ? rows : kRows;
}

template <int Register>
inline void zero() {
  std::memset(registers.cells[Register], 0, sizeof registers.cells[Register]);
}
template <int Register>
inline void load(const void* memory, size_t stride) {
  zero<Register>();
  for (int row = 0; row < registers.rows[Register]; ++row) {
    std::memcpy(registers.cells[Register][row], static_cast<const char*>(memory) + row * stride, kBytes);
  }
}
template <int Register>
inline void store(void* memory, size_t stride) {
  for (int row = 0; row < registers.rows[Register]; ++row) {
    std::memcpy(static_cast<char*>(memory) + row * stride, registers.cells[Register][row], kBytes);
  }
}

TANDEM_INLINE Float without_denormals(Float x) {
  const Bits magnitude = (Bits)x & 0x7fffffffu;
  return (Float)select(magnitude < Bits{} + 0x00800000u, (Bits)x & 0x80000000u, (Bits)x);
}

template <int Sum, int Left, int Right>
inline void multiply() {
  for (int row = 0; row < registers.rows[Sum]; ++row) {
    Float first = {}, second = {};
    for (int pair = 0; pair < kRows; ++pair) {
      const uint32_t left = registers.cells[Left][row][pair];
      Bits right;
      std::memcpy(&right, registers.cells[Right][pair], sizeof right);
      const auto add = [](Float sum, uint32_t a, Bits b) {
        const Float x = without_denormals(broadcast(std::bit_cast<float>(a))), y = without_denormals((Float)b);
        return without_denormals(fma(x, y, sum));
      };
      first = add(first, left << 16, right << 16);
      second = add(second, left & 0xffff0000u, right & 0xffff0000u);
    }
    Float sum;
    std::memcpy(&sum, registers.cells[Sum][row], sizeof sum);
    sum = without_denormals(without_denormals(sum) + without_denormals(first + second));
    std::memcpy(registers.cells[Sum][row], &sum, sizeof sum);
  }
}

#endif

}  // namespace tandem::kernels::TANDEM_ISA::tiles
