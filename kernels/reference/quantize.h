// The reference of quantize.h for one block of any shape, bit for bit. Pure functions; any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "kernels/formats/bf16.h"
#include "kernels/formats/e4m3.h"
#include "kernels/formats/e8m0.h"

namespace tandem::kernels::reference {

// The scale of a block whose largest magnitude is `largest`.
inline e8m0 scale_of(float largest) {
  if (!std::isfinite(largest)) return kE8m0Nan;
  return to_e8m0(std::max(largest / kE4m3Max, 0x1p-126f));
}

struct Quantized {
  std::vector<e4m3> codes;   // [rows][columns]
  std::vector<e8m0> scales;  // one a block, row by row
};

// x is [rows][columns], in blocks of block_rows x block_columns.
inline Quantized quantize(std::span<const bf16> x, int rows, int columns, int block_rows, int block_columns) {
  Quantized out{std::vector<e4m3>(x.size()), {}};
  for (int top = 0; top < rows; top += block_rows) {
    for (int left = 0; left < columns; left += block_columns) {
      const auto each = [&](const auto& visit) {
        for (int row = top; row < std::min(rows, top + block_rows); ++row) {
          for (int i = left; i < std::min(columns, left + block_columns); ++i) visit(size_t(row) * columns + i);
        }
      };
      float largest = 0;
      each([&](size_t i) {
        const float magnitude = std::abs(to_float(x[i]));
        if (!(magnitude <= largest)) largest = largest == largest ? magnitude : largest;  // the first NaN stays
      });
      const e8m0 scale = scale_of(largest);
      out.scales.push_back(scale);
      each([&](size_t i) { out.codes[i] = to_e4m3(to_float(x[i]) / to_float(scale)); });
    }
  }
  return out;
}

inline bf16 expand(e4m3 code, e8m0 scale) {
  const float value = to_float(code) * to_float(scale);
  return value == value ? to_bf16(value) : bf16{0x7fc0};
}

}  // namespace tandem::kernels::reference
