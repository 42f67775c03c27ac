// One element of a matrix product, bit for bit as each instruction set adds it up.
//
// sum over k of a[k] * b[k], pairs (k, k + 1) in order from a sum of zero:
//   avx2, avx512   two fused multiply-adds, the first element of the pair, then the second
//   avx512_bf16    two fused multiply-adds, the second element, then the first. Denormals count as zero in every
//   operand and
//                  become zero in every result
//   amx_bf16       sixteen pairs at a time, the last piece filled up with zeros: their first elements are one chain of
//   fused
//                  multiply-adds from zero, the second ones another; the two are added, then joined to the sum.
//                  Denormals as above
// A product of two bf16 is exact in fp32 unless it under- or overflows, so only there does "fused" make a difference.
// Which bits a NaN has is not promised. Pure functions; any thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/formats/bf16.h"
#include "kernels/stream.h"

namespace tandem::kernels::reference {

inline float without_denormals(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return (bits & 0x7fffffffu) < 0x00800000u ? std::bit_cast<float>(bits & 0x80000000u) : x;
}

// sum + a * b, rounded once, denormals taken as zero before and after.
inline float add_flushed(float sum, bf16 a, bf16 b) {
  const float x = without_denormals(to_float(a)), y = without_denormals(to_float(b));
  return without_denormals(std::fma(x, y, without_denormals(sum)));
}

// a and b of k elements each; k even.
inline float product_element(Isa isa, const bf16* a, const bf16* b, int k) {
  float sum = 0;
  switch (isa) {
    case Isa::kAvx2:
    case Isa::kAvx512:
      for (int i = 0; i < k; ++i) sum = std::fma(to_float(a[i]), to_float(b[i]), sum);
      break;
    case Isa::kAvx512Bf16:
      for (int i = 0; i < k; i += 2) sum = add_flushed(add_flushed(sum, a[i + 1], b[i + 1]), a[i], b[i]);
      break;
    case Isa::kAmxBf16:
      constexpr int kPiece = 32;
      for (int piece = 0; piece < k; piece += kPiece) {
        float first = 0, second = 0;
        for (int i = piece; i < piece + kPiece; i += 2) {
          first = add_flushed(first, i < k ? a[i] : bf16{}, i < k ? b[i] : bf16{});
          second = add_flushed(second, i < k ? a[i + 1] : bf16{}, i < k ? b[i + 1] : bf16{});
        }
        sum = without_denormals(sum + without_denormals(first + second));
      }
      break;
  }
  return sum;
}

}  // namespace tandem::kernels::reference
