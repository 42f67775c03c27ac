// E4M3 with a power of two for each block, and back.
#include "kernels/quantize.h"

#include "trainer/torch/ops/arguments.h"
#include "trainer/torch/ops/operators.h"
#include "trainer/torch/ops/streams.h"

namespace tandem::torch_ops {

using kernels::bf16;
using kernels::e4m3;
using kernels::e8m0;

namespace {

int64_t blocks_of(int64_t count, int block) { return (count + block - 1) / block; }

std::tuple<Tensor, Tensor> quantize_rows(const Arguments& check, const Tensor& x, int block) {
  const Tensor rows = check.bf16(x, "x");
  const int columns = check.columns(rows, "x"), count = check.rows(rows);
  std::vector<int64_t> sizes = sizes_of(rows);
  const Tensor codes = made_like(rows, sizes, ScalarType::Float8_e4m3fn);
  sizes.back() = blocks_of(columns, block);
  const Tensor scales = made_like(rows, sizes, ScalarType::Float8_e8m0fnu);
  if (count == 0 || columns == 0) return {codes, scales};
  BorrowedStream stream;
  check.check(kernels::quantize(*stream, {.x = in<bf16>(rows),
                                          .stride = static_cast<size_t>(columns),
                                          .by_row = out<e4m3>(codes),
                                          .row_scales = out<e8m0>(scales),
                                          .rows = count,
                                          .columns = columns,
                                          .block = block}));
  return {codes, scales};
}

}  // namespace

std::tuple<Tensor, Tensor> quantize_fp8(const Tensor& x) {
  return quantize_rows(Arguments("quantize_fp8"), x, kernels::kScaleBlock);
}

std::tuple<Tensor, Tensor> quantize_mxfp8(const Tensor& x) {
  return quantize_rows(Arguments("quantize_mxfp8"), x, kernels::kMicroscaleBlock);
}

std::tuple<Tensor, Tensor> quantize_weight_fp8(const Tensor& weight) {
  const Arguments check("quantize_weight_fp8");
  const Tensor matrix = check.bf16(weight, "weight");
  check.require(matrix.dim() == 2, "weight has ", matrix.dim(), " dimensions, expected [out, in]");
  const int rows = check.size(matrix.size(0), "the number of rows"), columns = check.columns(matrix, "weight");
  const Tensor codes = made_like(matrix, {rows, columns}, ScalarType::Float8_e4m3fn);
  const Tensor scales =
      made_like(matrix, {blocks_of(rows, kernels::kScaleBlock), blocks_of(columns, kernels::kScaleBlock)},
                ScalarType::Float8_e8m0fnu);
  if (rows == 0 || columns == 0) return {codes, scales};
  BorrowedStream stream;
  check.check(kernels::quantize_weight(*stream, in<bf16>(matrix), rows, columns, out<e4m3>(codes), out<e8m0>(scales)));
  return {codes, scales};
}

Tensor dequantize(const Tensor& codes, const Tensor& scales, int64_t block, int64_t block_rows) {
  const Arguments check("dequantize");
  const Tensor from = check.dense(codes, ScalarType::Float8_e4m3fn, "codes");
  const Tensor powers = check.dense(scales, ScalarType::Float8_e8m0fnu, "scales");
  const int columns = check.columns(from, "codes"), rows = check.rows(from);
  check.require(block == kernels::kScaleBlock || block == kernels::kMicroscaleBlock, "block is ", block, ", not ",
                kernels::kScaleBlock, " (fp8) or ", kernels::kMicroscaleBlock, " (mxfp8)");
  check.require(block_rows == 1 || (block_rows == kernels::kScaleBlock && block == kernels::kScaleBlock),
                "block_rows is ", block_rows, ", not 1, or of a weight in fp8 ", kernels::kScaleBlock);
  const int64_t down = blocks_of(rows, static_cast<int>(block_rows)),
                across = blocks_of(columns, static_cast<int>(block));
  check.require(powers.numel() == down * across, "scales has ", powers.numel(), " elements, expected ", down, " x ",
                across);
  const Tensor result = made_like(from, sizes_of(from), ScalarType::BFloat16);
  if (rows == 0 || columns == 0) return result;
  BorrowedStream stream;
  check.check(kernels::expand(*stream, {.codes = in<e4m3>(from),
                                        .scales = in<e8m0>(powers),
                                        .out = out<bf16>(result),
                                        .rows = rows,
                                        .columns = columns,
                                        .block = static_cast<int>(block),
                                        .block_rows = static_cast<int>(block_rows)}));
  return result;
}

}  // namespace tandem::torch_ops
