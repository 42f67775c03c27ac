// The row-wise operations of a transformer, forward and backward. Rows never see each other.
//
// Inputs and outputs are bf16, arithmetic fp32 in 16 lanes over the row with a fixed tree at the end, rounded once
// where a formula below says bf16(.). Gradients of weights are fp32 and added to what is there, in the order of rows.
// Forward operations exist in fp32, too: the same formulas and orders, without rounding.
//
// Thread safety: as gemm.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "kernels/formats/bf16.h"
#include "kernels/stream.h"

namespace tandem::kernels {

// out[r] = table[ids[r]]. kInvalid names a null pointer, and an id outside [0, vocabulary).
Status embed(Stream& stream, const bf16* table, int vocabulary, int width, std::span<const int32_t> ids, bf16* out);
Status embed(Stream& stream, const float* table, int vocabulary, int width, std::span<const int32_t> ids, float* out);
// grad_table[ids[r]] += grad_out[r], rows in order.
Status embed_backward(Stream& stream, const bf16* grad_out, int width, std::span<const int32_t> ids, float* grad_table);

// out = bf16(bf16(x / sqrt(mean(x^2) + epsilon)) * weight)  (Zhang & Sennrich 2019, rounded as transformers does).
Status rms_norm(Stream& stream, const bf16* x, const bf16* weight, float epsilon, int rows, int width, bf16* out);
Status rms_norm(Stream& stream, const float* x, const float* weight, float epsilon, int rows, int width, float* out);
struct RmsNormBackward {
  const bf16* x = nullptr;
  const bf16* weight = nullptr;
  const bf16* grad_out = nullptr;
  bf16* grad_x = nullptr;        // added to where `accumulate`, else written
  float* grad_weight = nullptr;  // [width], added to
  bool accumulate = false;
  float epsilon = 0;
  int rows = 0, width = 0;
};
Status rms_norm_backward(Stream& stream, const RmsNormBackward& arguments);

// rms_norm of each head of a row by itself, in place: queries or keys before RoPE. x is [row][heads][head_size].
template <typename T>
struct BasicHeadNorm {
  T* x = nullptr;
  size_t stride = 0;          // elements from row to row
  const T* weight = nullptr;  // [head_size], the same for all heads
  float epsilon = 0;
  int rows = 0, heads = 0, head_size = 0;
};
using HeadNorm = BasicHeadNorm<bf16>;
Status head_norm(Stream& stream, const HeadNorm& arguments);
Status head_norm(Stream& stream, const BasicHeadNorm<float>& arguments);
struct HeadNormBackward {
  const bf16* x = nullptr;  // as they were before the norm
  bf16* grad = nullptr;     // of the normed heads; becomes that of x
  size_t stride = 0;        // of x and grad
  const bf16* weight = nullptr;
  float* grad_weight = nullptr;  // [head_size], added to
  float epsilon = 0;
  int rows = 0, heads = 0, head_size = 0;
};
Status head_norm_backward(Stream& stream, const HeadNormBackward& arguments);

// out += the sum of the rows of x: the gradient of a bias.
struct SumRows {
  const bf16* x = nullptr;
  size_t stride = 0;     // elements from row to row
  float* out = nullptr;  // [width]
  int rows = 0, width = 0;
};
Status sum_rows(Stream& stream, const SumRows& arguments);

// Rotates pairs of each head's elements in place by position * frequency[i] (Su et al. 2021): (x[i], x[i + rope_dim /
// 2]), or (x[2 i], x[2 i + 1]) where `interleaved`. What lies behind the rotated elements of a head stays as it is.
template <typename T>
struct BasicRope {
  T* x = nullptr;                      // [row][heads][head_size]
  size_t stride = 0;                   // elements from row to row
  std::span<const int32_t> positions;  // of each row, below table_positions
  const float* table = nullptr;        // what `rope_table` made for `rope_dim`
  int table_positions = 0;
  int rows = 0, heads = 0, head_size = 0;
  int rope_dim = 0;  // of a head's elements, the first ones; even
  bool interleaved = false;
  bool inverse = false;  // turns back: the backward pass
};
using Rope = BasicRope<bf16>;
Status rope(Stream& stream, const Rope& arguments);
Status rope(Stream& stream, const BasicRope<float>& arguments);
// [positions][pairs][2]: cosine and sine of position * frequency, computed in double and multiplied by `magnitude`.
// `frequencies` are in radians, one for each pair.
std::vector<float> rope_table(int positions, std::span<const float> frequencies, double magnitude = 1);

// gate_up is [row][2 * width], gate first; out = bf16(gate / (1 + e^-gate) * up).
Status swiglu(Stream& stream, const bf16* gate_up, int rows, int width, bf16* out);
Status swiglu(Stream& stream, const float* gate_up, int rows, int width, float* out);
Status swiglu_backward(Stream& stream, const bf16* gate_up, const bf16* grad_out, int rows, int width,
                       bf16* grad_gate_up);

// out = bf16(gelu(gate) * up) with gelu(x) = x / (1 + e^-u), u = sqrt(8 / pi) (x + 0.044715 x^3): what Gemma and others
// call gelu_pytorch_tanh (Hendrycks & Gimpel 2016; Shazeer 2020 for the gate).
Status geglu(Stream& stream, const bf16* gate_up, int rows, int width, bf16* out);
Status geglu(Stream& stream, const float* gate_up, int rows, int width, float* out);
Status geglu_backward(Stream& stream, const bf16* gate_up, const bf16* grad_out, int rows, int width,
                      bf16* grad_gate_up);

// x += y, rounded once.
Status add(Stream& stream, const bf16* y, size_t count, bf16* x);
Status add(Stream& stream, const float* y, size_t count, float* x);

}  // namespace tandem::kernels
