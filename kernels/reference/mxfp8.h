// One element of an MXFP8 product, in the order in which block-scaled tensor cores take its blocks.
//
// A sum of 32 products of E4M3 takes 41 bits at most, so a block is exact in double, and so is its product with powers
// of two. Between blocks the sum is an fp32, rounded to nearest, ties to even. Pure functions; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "kernels/formats/e4m3.h"
#include "kernels/formats/e8m0.h"

namespace tandem::kernels::reference {

// Rows of the same length and their scales, one for each block of 32.
inline float mxfp8_element(std::span<const e4m3> a, std::span<const e8m0> a_scales, std::span<const e4m3> b,
                           std::span<const e8m0> b_scales) {
  constexpr size_t kBlock = 32;
  float sum = 0;
  for (size_t begin = 0; begin < a.size(); begin += kBlock) {
    double block = 0;
    for (size_t k = begin; k < std::min(a.size(), begin + kBlock); ++k) {
      block += static_cast<double>(to_float(a[k])) * to_float(b[k]);
    }
    const double scale = static_cast<double>(to_float(a_scales[begin / kBlock])) * to_float(b_scales[begin / kBlock]);
    sum = static_cast<float>(sum + block * scale);
  }
  return sum;
}

}  // namespace tandem::kernels::reference
