// AdamW over one tensor, and the norm of gradients, in fixed orders.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "kernels/formats/bf16.h"
#include "kernels/formats/e4m3.h"
#include "kernels/formats/e8m0.h"
#include "kernels/stream.h"

namespace tandem::kernels {

// Loshchilov & Hutter 2019, bias-corrected as in PyTorch:
//   g = grad * grad_scale;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   w = w (1 - lr decay) - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon);  weight = bf16(w)
//
// Moments are fp32, or bf16 rounded to nearest, ties to even: half the bytes, as DeepSeek-V3 keeps them. With b2 above
// 0.996 a step takes less than half of a bf16's last place off, and a second moment would never fall again: refused.
//
// Where `codes` are given, the new weight is quantised on the way, in blocks of 128 x 128 as quantize_weight does it.
template <typename Moment>
struct BasicAdamW {
  const float* grad = nullptr;
  float* master = nullptr;
  Moment* first_moment = nullptr;
  Moment* second_moment = nullptr;
  bf16* weight = nullptr;
  size_t count = 0;
  float grad_scale = 1;
  float learning_rate = 0, beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f, weight_decay = 0;
  int64_t step = 1;        // counts from 1
  e4m3* codes = nullptr;   // [count], with scales
  e8m0* scales = nullptr;  // [scale_blocks(count / columns)][scale_blocks(columns)]
  int columns = 0;         // of the weight, with codes; divides count
};
using AdamW = BasicAdamW<float>;
// kInvalid names the argument: a null pointer, a step below 1, codes without scales or columns, columns that do not
// divide count, a beta2 above 0.996 with bf16 moments.
Status adamw(Stream& stream, const AdamW& arguments);
Status adamw(Stream& stream, const BasicAdamW<bf16>& arguments);

// Sum of squares in double, by pieces of kSquaresPiece elements added in order.
constexpr size_t kSquaresPiece = size_t{1} << 16;
Result<double> sum_of_squares(Stream& stream, const float* values, size_t count);
// Those of the pieces, sums [ceil(count / kSquaresPiece)]: who has some of the pieces can add with those who have
// others.
Status sums_of_squares(Stream& stream, const float* values, size_t count, double* sums);

}  // namespace tandem::kernels
