// RMS norm, forward and backward.
#include "kernels/transformer_ops.h"
#include "trainer/torch/ops/arguments.h"
#include "trainer/torch/ops/operators.h"
#include "trainer/torch/ops/streams.h"

namespace tandem::torch_ops {

using kernels::bf16;

namespace {

int width_of(const Arguments& check, const Tensor& x, const Tensor& weight) {
  const int width = check.columns(x, "x");
  check.require(weight.dim() == 1 && weight.size(0) == width, "weight is not [", width, "], the last extent of x");
  return width;
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  const Arguments check("rms_norm");
  const Tensor rows = check.bf16(x, "x"), factors = check.bf16(weight, "weight");
  const int width = width_of(check, rows, factors), count = check.rows(rows);
  const Tensor result = made_like(rows, sizes_of(rows), ScalarType::BFloat16);
  if (count == 0 || width == 0) return result;
  BorrowedStream stream;
  check.check(kernels::rms_norm(*stream, in<bf16>(rows), in<bf16>(factors), static_cast<float>(eps), count, width,
                                out<bf16>(result)));
  return result;
}

std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, double eps) {
  const Arguments check("rms_norm_backward");
  const Tensor rows = check.bf16(x, "x"), factors = check.bf16(weight, "weight"), of_out = check.bf16(grad, "grad");
  const int width = width_of(check, rows, factors), count = check.rows(rows);
  check.require(sizes_of(of_out) == sizes_of(rows), "grad has another shape than x");
  const Tensor result = made_like(rows, sizes_of(rows), ScalarType::BFloat16);
  std::vector<float> sums(width, 0);
  if (count > 0 && width > 0) {
    BorrowedStream stream;
    check.check(kernels::rms_norm_backward(*stream, {.x = in<bf16>(rows),
                                                     .weight = in<bf16>(factors),
                                                     .grad_out = in<bf16>(of_out),
                                                     .grad_x = out<bf16>(result),
                                                     .grad_weight = sums.data(),
                                                     .epsilon = static_cast<float>(eps),
                                                     .rows = count,
                                                     .width = width}));
  }
  return {result, rounded(factors, {width}, sums)};
}

}  // namespace tandem::torch_ops
