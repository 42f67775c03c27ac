// Operations of sentence encoders: LayerNorm, GELU, their gradients, and bidirectional attention. All in fp32.
//
// Rows of several sequences lie one after the other without padding. A sequence has the same bits alone and among
// others, wherever it lies, with any number of threads and on every instruction set: sums over a row run in 16 lanes
// and a fixed tree, products as in gemm.h, and keys in blocks of 64 counted from the start of their sequence.
//
// Thread safety: as gemm.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "kernels/stream.h"

namespace tandem::kernels {

// out = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * weight + bias  (Ba et al. 2016), row by row. The mean
// is taken first, then the squares about it; the last step is one fused multiply-add. `out` may be x.
struct LayerNorm {
  const float* x = nullptr;       // [row][width]
  const float* weight = nullptr;  // [width]
  const float* bias = nullptr;    // [width]
  float* out = nullptr;           // [row][width]
  float epsilon = 0;
  int rows = 0, width = 0;
};
Status layer_norm(Stream& stream, const LayerNorm& arguments);
// With r = 1 / sqrt(variance + epsilon), n = (x - mean) r and g = weight * grad_out:
//   grad_x = r (g - mean(g) - n mean(g n));  grad_weight += grad_out n, grad_bias += grad_out, rows in order.
struct LayerNormBackward {
  const float* x = nullptr;         // [row][width]
  const float* weight = nullptr;    // [width]
  const float* grad_out = nullptr;  // [row][width]
  float* grad_x = nullptr;          // [row][width], may be grad_out
  float* grad_weight = nullptr;     // [width]
  float* grad_bias = nullptr;       // [width]
  float epsilon = 0;
  int rows = 0, width = 0;
};
Status layer_norm_backward(Stream& stream, const LayerNormBackward& arguments);

// x = x P(normal <= x) in place (Hendrycks & Gimpel 2016, the one with the error function). Behind |x| the tail of the
// normal distribution is e^(-x^2 / 2) times a polynomial of degree 9 in 1 / (1 + 0.35 |x|); the result errs by at most
// 2^-22 |x| and, above -4, by at most 2^-20 of itself. Below -13.2 it is 0.
Status gelu(Stream& stream, float* x, size_t count);
// grad *= P(normal <= x) + x e^(-x^2 / 2) / sqrt(2 pi), x as it was before; errs by at most 2^-20 of the gradient.
Status gelu_backward(Stream& stream, const float* x, size_t count, float* grad);

// Every row of a sequence sees all rows of it (Vaswani et al. 2017): for each row and head blocks of keys are joined in
// order by the formula of attention.h, with nothing rounded on the way.
struct BidirectionalAttention {
  const float* queries = nullptr;  // [row][heads * head_size], all three with the stride `stride`: columns of one fused
  const float* keys = nullptr;     // [q | k | v] matrix
  const float* values = nullptr;
  size_t stride = 0;
  float* out = nullptr;  // [row][heads * head_size], none of the inputs
  size_t out_stride = 0;
  std::span<const int32_t> ends;  // of each sequence, the row behind its last; the first begins at row 0. Ascending
  int heads = 0;
  int head_size = 0;  // 1 to 256
  float scale = 0;    // on the scores, usually 1 / sqrt(head_size)
};
// kInvalid names the argument, an end that is below the one before it among them.
Status bidirectional_attention(Stream& stream, const BidirectionalAttention& arguments);

}  // namespace tandem::kernels
