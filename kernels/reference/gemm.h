// The product of gemm.h in double, and what bounds the rounding of any order of additions. Row-major, dense. Any
// thread.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "kernels/formats/bf16.h"

namespace tandem::kernels::reference {

struct Product {
  std::vector<double> sums;        // [m][n]
  std::vector<double> magnitudes;  // [m][n], sums of |a * b|: k roundings of fp32 err by at most k 2^-24 of it
};

// out[m][n] = sum over k of a[m][k] * b[n][k].
inline Product gemm(std::span<const bf16> a, std::span<const bf16> b, int m, int n, int k) {
  Product out{std::vector<double>(size_t(m) * n), std::vector<double>(size_t(m) * n)};
  for (int row = 0; row < m; ++row) {
    for (int column = 0; column < n; ++column) {
      const size_t element = size_t(row) * n + column;
      for (int i = 0; i < k; ++i) {
        const double term = double{to_float(a[size_t(row) * k + i])} * to_float(b[size_t(column) * k + i]);
        out.sums[element] += term;
        out.magnitudes[element] += std::abs(term);
      }
    }
  }
  return out;
}

}  // namespace tandem::kernels::reference
