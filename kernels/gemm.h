// Matrix products whose every output element adds its products in an order that depends on K alone.
//
//   out[m][n] = sum over k of a[m][k] * b[n][k]   (+ bias[n] + residual[m][n], or + the value already in out)
//
// Inputs are bf16, sums fp32. One accumulator per element takes k = 0, 1, 2, ... in pairs, whatever M, N, the position
// of the row, the tile or the number of threads: row i has the same bits alone and among a thousand. The bias, then the
// residual, or the old value, is added once, after the sum; a bf16 result is rounded once, at the end.
//
// `b` is packed beforehand (weights once per version, activations per call in a weight gradient): panels of 64 columns,
// [N/64][K/2][64][2], padded with zeros. Packing moves bits and changes none.
//
// Thread safety: calls may run at once on different pools; inputs are only read.
#pragma once

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "kernels/formats/bf16.h"
#include "kernels/stream.h"

namespace tandem::kernels {

constexpr int kPanelColumns = 64;

// bf16 elements that a packed matrix of n columns and k rows takes.
size_t packed_size(int n, int k);

// `weight` is [n][k] row by row, the layout of a Linear's weight. k even.
Status pack(Stream& stream, const bf16* weight, int n, int k, bf16* packed);
// The transpose: `weight` is [k][n] row by row. k even, or the last row is taken as followed by zeros.
Status pack_transposed(Stream& stream, const bf16* weight, int k, int n, bf16* packed);

struct Gemm {
  const bf16* a = nullptr;  // [m][k], `a_stride` elements from row to row
  size_t a_stride = 0;
  bool a_packed = false;           // a is packed as b is, m being its columns: both sides of a weight gradient are
  const bf16* b = nullptr;         // packed, see above
  size_t b_panel_stride = 0;       // elements from panel to panel; 0: dense. More than dense takes a part of a longer k
  const bf16* bias = nullptr;      // [n] or none; only with out_bf16
  const bf16* residual = nullptr;  // [m][n] or none; only with out_bf16; may be out_bf16 itself
  bf16* out_bf16 = nullptr;        // exactly one of the two outputs
  float* out_float = nullptr;
  size_t out_stride = 0;    // elements from row to row of the output and the residual
  bool accumulate = false;  // out_float += product
  int m = 0, n = 0, k = 0;  // k even
};
// kInvalid names the argument: null or both outputs, negative sizes, odd k, strides below the row length.
Status gemm(Stream& stream, const Gemm& arguments);

}  // namespace tandem::kernels
