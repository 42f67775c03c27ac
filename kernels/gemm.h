// Matrix products with a fixed order of additions that depends on K alone.
//
//   out[m][n] = sum over k of a[m][k] * b[n][k]   (+ bias[n] + residual[m][n], or + the value already in out)
//
// Inputs are bf16, or all is fp32; sums are fp32. One accumulator per element takes k = 0, 1, 2, ..., of bf16 in pairs,
// of fp32 one fused multiply-add each, whatever M, N, the position of the row, the tile or the number of threads: row i
// has the same bits alone and among a thousand. The bias, then the residual, or the old value, is added once, after the
// sum; a bf16 result is rounded once, at the end.
//
// `b` is packed beforehand (weights once per version, activations per call in a weight gradient): panels of 64 columns,
// [N/64][K/2][64][2] of bf16, [N/64][K][64] of fp32, padded with zeros. Packing moves bits and changes none. E4M3 codes
// with power-of-two scales may be packed as codes, half the bytes of bf16: each is expanded where it is multiplied, and
// products have the bits of those with the panels that `expand` and `pack` would make.
//
// Thread safety: calls may run at once on different pools; inputs are only read.
#pragma once

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "kernels/formats/bf16.h"
#include "kernels/quantize.h"
#include "kernels/stream.h"

namespace tandem::kernels {

constexpr int kPanelColumns = 64;
constexpr int kCodedDepth = 32;  // k of a block of packed codes, of which each column has one exponent

// Elements of k that lie side by side in a panel.
template <typename T>
constexpr int kSideBySide = sizeof(T) == sizeof(bf16) ? 2 : 1;

// Elements that a packed matrix of n columns and k rows takes.
size_t packed_size(int n, int k);

// `weight` is [n][k] row by row, the layout of a Linear's weight. k even.
Status pack(Stream& stream, const bf16* weight, int n, int k, bf16* packed);
Status pack(Stream& stream, const float* weight, int n, int k, float* packed);
// The transpose: `weight` is [k][n] row by row. k even, or the last row is taken as followed by zeros.
Status pack_transposed(Stream& stream, const bf16* weight, int k, int n, bf16* packed);
Status pack_transposed(Stream& stream, const float* weight, int k, int n, float* packed);

// Codes and scales as Expand has them, `n` rows of `k` columns.
struct PackCodes {
  const e4m3* codes = nullptr;
  const e8m0* scales = nullptr;
  std::byte* packed = nullptr;  // packed_codes_size(n, k) bytes
  int n = 0, k = 0;             // k even
  int block = kScaleBlock;      // columns of a block; or kMicroscaleBlock
  int block_rows = 1;           // or kScaleBlock
};
size_t packed_codes_size(int n, int k);
// False where some value is NaN or no normal number of bf16, scaled: `packed` then means nothing, and bf16 panels hold
// it.
Result<bool> pack_codes(Stream& stream, const PackCodes& arguments);

// A right side in one of its forms.
template <typename T>
struct RightSide {
  const T* panels = nullptr;
  const std::byte* codes = nullptr;  // of bf16 alone: packed by pack_codes
  constexpr RightSide() = default;
  constexpr RightSide(const T* all) : panels(all) {}
  constexpr explicit RightSide(const std::byte* all) : codes(all) {}
  constexpr const void* either() const { return codes != nullptr ? static_cast<const void*>(codes) : panels; }
};

template <typename T>
struct BasicGemm {
  const T* a = nullptr;  // [m][k], `a_stride` elements from row to row
  size_t a_stride = 0;
  bool a_packed = false;        // a is packed as b is, m being its columns: both sides of a weight gradient are
  RightSide<T> b;               // packed, see above
  size_t b_panel_stride = 0;    // elements from panel to panel; 0: dense. More than dense takes a part of a longer k;
                                // codes are dense
  const T* bias = nullptr;      // [n] or none; only with out
  const T* residual = nullptr;  // [m][n] or none; only with out; may be out itself
  T* out = nullptr;             // exactly one of the two outputs
  float* out_float = nullptr;   // the sums as they are
  size_t out_stride = 0;        // elements from row to row of the output and the residual
  bool accumulate = false;      // out_float += product
  int m = 0, n = 0, k = 0;      // k even
};
using Gemm = BasicGemm<bf16>;
// kInvalid names the argument: null or both outputs, negative sizes, odd k, strides below the row length.
Status gemm(Stream& stream, const Gemm& arguments);
Status gemm(Stream& stream, const BasicGemm<float>& arguments);

// A batch of products of one shape, one matrix a group (the heads of a layer). Each has the bits of `gemm` alone.
template <typename T>
struct BasicBatchedGemm {
  const T* a = nullptr;  // group g is a + g * a_group, [m][k], `a_stride` elements from row to row
  size_t a_stride = 0, a_group = 0;
  const T* b = nullptr;  // packed; `b_group` elements from one to the next
  size_t b_group = 0;
  T* out = nullptr;  // as a, [m][n]
  size_t out_stride = 0, out_group = 0;
  int groups = 0, m = 0, n = 0, k = 0;  // k even
};
using BatchedGemm = BasicBatchedGemm<bf16>;
Status batched_gemm(Stream& stream, const BatchedGemm& arguments);
Status batched_gemm(Stream& stream, const BasicBatchedGemm<float>& arguments);

}  // namespace tandem::kernels
