// A vector of 512 bits in two registers of 256: the operators that the compiler gives for vectors, half by half.
//
// GCC has vectors of any size, but one that is wider than a register goes through memory between operations, and is
// compared and chosen from number by number.
// Included by simd.h alone, inside the namespace that TANDEM_ISA names.
#pragma once

#include <immintrin.h>

#include <cstdint>

#define TANDEM_INLINE inline __attribute__((always_inline))

namespace tandem::kernels::TANDEM_ISA {

// V: a vector of 32 bytes.
template <typename V>
struct TwoRegisters {
  using Element = std::decay_t<decltype(V{}[0])>;
  using Mask = TwoRegisters<decltype(V{} < V{})>;

  V low = {}, high = {};

  TwoRegisters() = default;
  TANDEM_INLINE TwoRegisters(V low_in, V high_in) : low(low_in), high(high_in) {}
  TANDEM_INLINE TwoRegisters(Element all) : low(V{} + all), high(V{} + all) {}
  // The same bits as another type.
  template <typename W>
  TANDEM_INLINE explicit operator TwoRegisters<W>() const {
    return {(W)low, (W)high};
  }
  TANDEM_INLINE Element operator[](int lane) const { return lane < 8 ? low[lane] : high[lane - 8]; }

  friend TANDEM_INLINE TwoRegisters operator-(TwoRegisters a) { return {-a.low, -a.high}; }
  friend TANDEM_INLINE TwoRegisters operator+(TwoRegisters a, TwoRegisters b) {
    return {a.low + b.low, a.high + b.high};
  }
  friend TANDEM_INLINE TwoRegisters operator-(TwoRegisters a, TwoRegisters b) {
    return {a.low - b.low, a.high - b.high};
  }
  friend TANDEM_INLINE TwoRegisters operator*(TwoRegisters a, TwoRegisters b) {
    return {a.low * b.low, a.high * b.high};
  }
  friend TANDEM_INLINE TwoRegisters operator/(TwoRegisters a, TwoRegisters b) {
    return {a.low / b.low, a.high / b.high};
  }
  friend TANDEM_INLINE TwoRegisters operator&(TwoRegisters a, TwoRegisters b) {
    return {a.low & b.low, a.high & b.high};
  }
  friend TANDEM_INLINE TwoRegisters operator|(TwoRegisters a, TwoRegisters b) {
    return {a.low | b.low, a.high | b.high};
  }
  friend TANDEM_INLINE TwoRegisters operator<<(TwoRegisters a, int bits) { return {a.low << bits, a.high << bits}; }
  friend TANDEM_INLINE TwoRegisters operator>>(TwoRegisters a, int bits) { return {a.low >> bits, a.high >> bits}; }
  friend TANDEM_INLINE Mask operator<(TwoRegisters a, TwoRegisters b) { return {a.low < b.low, a.high < b.high}; }
  friend TANDEM_INLINE Mask operator>(TwoRegisters a, TwoRegisters b) { return {a.low > b.low, a.high > b.high}; }
  friend TANDEM_INLINE Mask operator>=(TwoRegisters a, TwoRegisters b) { return {a.low >= b.low, a.high >= b.high}; }
  friend TANDEM_INLINE Mask operator==(TwoRegisters a, TwoRegisters b) { return {a.low == b.low, a.high == b.high}; }
  friend TANDEM_INLINE Mask operator!=(TwoRegisters a, TwoRegisters b) { return {a.low != b.low, a.high != b.high}; }
};

}  // namespace tandem::kernels::TANDEM_ISA
