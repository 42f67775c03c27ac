// Products by weights, forward and backward.
#include "kernels/gemm.h"
#include "kernels/transformer_ops.h"
#include "trainer/torch/ops/arguments.h"
#include "trainer/torch/ops/operators.h"
#include "trainer/torch/ops/streams.h"

namespace tandem::torch_ops {

using kernels::bf16;

namespace {

struct Product {
  int m = 0, n = 0, k = 0;
};

Product product_of(const Arguments& check, const Tensor& x, const Tensor& weight) {
  check.require(weight.dim() == 2, "weight has ", weight.dim(), " dimensions, expected [out, in]");
  const Product size{check.rows(x), check.size(weight.size(0), "the number of outputs"), check.columns(x, "x")};
  check.require(weight.size(1) == size.k, "x has ", size.k, " columns, but weight has ", weight.size(1));
  check.require(size.k % 2 == 0, "x has ", size.k, " columns: an odd number is not supported");
  return size;
}

const bf16* bias_of(const Arguments& check, const std::optional<Tensor>& bias, int n, Tensor& dense) {
  if (!bias) return nullptr;
  dense = check.bf16(*bias, "bias");
  check.require(dense.dim() == 1 && dense.size(0) == n, "bias is not [", n, "]");
  return in<bf16>(dense);
}

Tensor multiply(const Arguments& check, kernels::Stream& stream, const Tensor& x, const bf16* packed, Product size,
                const std::optional<Tensor>& bias) {
  Tensor dense_bias;
  const bf16* added = bias_of(check, bias, size.n, dense_bias);
  std::vector<int64_t> sizes = sizes_of(x);
  sizes.back() = size.n;
  const Tensor result = made_like(x, sizes, ScalarType::BFloat16);
  if (size.m == 0 || size.n == 0) return result;
  check.check(kernels::gemm(stream, kernels::Gemm{.a = in<bf16>(x),
                                                  .a_stride = static_cast<size_t>(size.k),
                                                  .b = packed,
                                                  .bias = added,
                                                  .out = out<bf16>(result),
                                                  .out_stride = static_cast<size_t>(size.n),
                                                  .m = size.m,
                                                  .n = size.n,
                                                  .k = size.k}));
  return result;
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, std::optional<Tensor> bias) {
  const Arguments check("linear");
  const Tensor rows = check.bf16(x, "x"), matrix = check.bf16(weight, "weight");
  const Product size = product_of(check, rows, matrix);
  BorrowedStream stream;
  std::vector<bf16> packed(kernels::packed_size(size.n, size.k));
  check.check(kernels::pack(*stream, in<bf16>(matrix), size.n, size.k, packed.data()));
  return multiply(check, *stream, rows, packed.data(), size, bias);
}

Tensor pack_weight(const Tensor& weight) {
  const Arguments check("pack_weight");
  const Tensor matrix = check.bf16(weight, "weight");
  const Product size = product_of(check, matrix, matrix);
  const Tensor packed =
      made_like(matrix, {static_cast<int64_t>(kernels::packed_size(size.n, size.k))}, ScalarType::BFloat16);
  BorrowedStream stream;
  check.check(kernels::pack(*stream, in<bf16>(matrix), size.n, size.k, out<bf16>(packed)));
  return packed;
}

Tensor linear_packed(const Tensor& x, const Tensor& packed, int64_t n, std::optional<Tensor> bias) {
  const Arguments check("linear_packed");
  const Tensor rows = check.bf16(x, "x"), panels = check.bf16(packed, "packed");
  check.require(n >= 0, "n is ", n);
  const Product size{check.rows(rows), check.size(n, "n"), check.columns(rows, "x")};
  check.require(size.k % 2 == 0, "x has ", size.k, " columns: an odd number is not supported");
  const auto expected = static_cast<int64_t>(kernels::packed_size(size.n, size.k));
  check.require(panels.numel() == expected, "packed has ", panels.numel(), " elements, a weight of ", size.n, " x ",
                size.k, " has ", expected);
  BorrowedStream stream;
  return multiply(check, *stream, rows, in<bf16>(panels), size, bias);
}

// Sums over n go in pairs: an odd row gets a zero behind it.
Tensor linear_grad_x(const Tensor& grad, const Tensor& weight) {
  const Arguments check("linear_grad_x");
  const Tensor of_out = check.bf16(grad, "grad"), matrix = check.bf16(weight, "weight");
  check.require(matrix.dim() == 2, "weight has ", matrix.dim(), " dimensions, expected [out, in]");
  const int m = check.rows(of_out), n = check.columns(of_out, "grad"), k = check.columns(matrix, "weight");
  check.require(matrix.size(0) == n, "grad has ", n, " columns, but weight has ", matrix.size(0), " rows");
  std::vector<int64_t> sizes = sizes_of(of_out);
  sizes.back() = k;
  const Tensor result = made_like(of_out, sizes, ScalarType::BFloat16);
  if (m == 0 || k == 0) return result;
  const int depth = (n + 1) / 2 * 2;
  BorrowedStream stream;
  std::vector<bf16> packed(kernels::packed_size(k, depth));
  check.check(kernels::pack_transposed(*stream, in<bf16>(matrix), n, k, packed.data()));
  std::vector<bf16> padded;
  const bf16* rows = in<bf16>(of_out);
  if (depth != n) {
    padded.assign(static_cast<size_t>(m) * depth, bf16{});
    for (int row = 0; row < m; ++row)
      std::copy_n(rows + static_cast<size_t>(row) * n, n, &padded[static_cast<size_t>(row) * depth]);
    rows = padded.data();
  }
  check.check(kernels::gemm(*stream, kernels::Gemm{.a = rows,
                                                   .a_stride = static_cast<size_t>(depth),
                                                   .b = packed.data(),
                                                   .out = out<bf16>(result),
                                                   .out_stride = static_cast<size_t>(k),
                                                   .m = m,
                                                   .n = k,
                                                   .k = depth}));
  return result;
}

// The transpose of grad by x, rows in order.
Tensor linear_grad_weight(const Tensor& grad, const Tensor& x) {
  const Arguments check("linear_grad_weight");
  const Tensor of_out = check.bf16(grad, "grad"), rows = check.bf16(x, "x");
  const int m = check.rows(rows), n = check.columns(of_out, "grad"), k = check.columns(rows, "x");
  check.require(check.rows(of_out) == m, "grad has ", check.rows(of_out), " rows, but x has ", m);
  const int depth = (m + 1) / 2 * 2;
  std::vector<float> sums(static_cast<size_t>(n) * k, 0);
  if (m > 0 && !sums.empty()) {
    BorrowedStream stream;
    std::vector<bf16> packed_x(kernels::packed_size(k, depth)), packed_grad(kernels::packed_size(n, depth));
    check.check(kernels::pack_transposed(*stream, in<bf16>(rows), m, k, packed_x.data()));
    check.check(kernels::pack_transposed(*stream, in<bf16>(of_out), m, n, packed_grad.data()));
    check.check(kernels::gemm(*stream, kernels::Gemm{.a = packed_grad.data(),
                                                     .a_packed = true,
                                                     .b = packed_x.data(),
                                                     .out_float = sums.data(),
                                                     .out_stride = static_cast<size_t>(k),
                                                     .m = n,
                                                     .n = k,
                                                     .k = depth}));
  }
  return rounded(rows, {n, k}, sums);
}

Tensor linear_grad_bias(const Tensor& grad) {
  const Arguments check("linear_grad_bias");
  const Tensor of_out = check.bf16(grad, "grad");
  const int m = check.rows(of_out), n = check.columns(of_out, "grad");
  std::vector<float> sums(n, 0);
  if (m > 0 && n > 0) {
    BorrowedStream stream;
    check.check(kernels::sum_rows(
        *stream, {.x = in<bf16>(of_out), .stride = static_cast<size_t>(n), .out = sums.data(), .rows = m, .width = n}));
  }
  return rounded(of_out, {n}, sums);
}

}  // namespace tandem::torch_ops
