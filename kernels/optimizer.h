// AdamW over one tensor, and the norm of gradients, in fixed orders.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "kernels/formats/bf16.h"
#include "kernels/stream.h"

namespace tandem::kernels {

// Loshchilov & Hutter 2019, bias-corrected as in PyTorch:
//   g = grad * grad_scale;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   w = w (1 - lr decay) - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon);  weight = bf16(w)
struct AdamW {
  const float* grad = nullptr;
  float* master = nullptr;
  float* first_moment = nullptr;
  float* second_moment = nullptr;
  bf16* weight = nullptr;
  size_t count = 0;
  float grad_scale = 1;
  float learning_rate = 0, beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f, weight_decay = 0;
  int64_t step = 1;  // counts from 1
};
Status adamw(Stream& stream, const AdamW& arguments);

// Sum of squares in double, by chunks of 64 Ki elements added in order.
Result<double> sum_of_squares(Stream& stream, const float* values, size_t count);

}  // namespace tandem::kernels
