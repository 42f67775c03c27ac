// A row has the same bits alone and among others, wherever it lies: for each operation over rows, the middle and the
// last of many rows are computed once more by themselves.
#include "kernels/quantize.h"
#include "tests/kernels/cuda_machines.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kRows = 67, kWidth = 100;
constexpr size_t kElements = size_t{kRows} * kWidth;

// of_rows(first row, rows): the arguments for them. `results` names the bytes of row results: pairs of array and
// elements a row.
template <typename OfRows, typename Results>
void expect_rows_alone(const OfRows& of_rows, const Results& results) {
  HostMachine machine;
  const auto all = of_rows(machine, 0, kRows);
  ASSERT_EQ(machine.run(all), 0);
  for (const int row : {0, 33, kRows - 1}) {
    const auto one = of_rows(machine, row, 1);
    ASSERT_EQ(machine.run(one), 0);
    results(all, one, [&](const auto* among, const auto* alone, size_t elements) {
      EXPECT_EQ(machine.fetch(among + row * elements, elements), machine.fetch(alone, elements)) << "row " << row;
    });
  }
}

template <typename T>
std::vector<T> rows_from(const std::vector<T>& all, int first, int rows, size_t width) {
  return {all.begin() + first * width, all.begin() + (first + rows) * width};
}

TEST(CudaHost, a_row_of_norms_and_gates_has_the_same_bits_alone_and_among_others) {
  expect_rows_alone(
      [](HostMachine& machine, int first, int rows) {
        return TandemCudaHeadNorm{.x = machine.place(rows_from(random_bf16(kElements, 1), first, rows, kWidth)),
                                  .stride = kWidth,
                                  .weight = machine.place(random_bf16(25, 2)),
                                  .epsilon = 1e-6f,
                                  .rows = rows,
                                  .heads = 4,
                                  .head_size = 25};
      },
      [](const auto& all, const auto& one, const auto& same) { same(all.x, one.x, kWidth); });
  expect_rows_alone(
      [](HostMachine& machine, int first, int rows) {
        return TandemCudaGeglu{
            .gate_up = machine.place(rows_from(random_bf16(2 * kElements, 1), first, rows, 2 * kWidth)),
            .out = machine.room<uint16_t>(static_cast<size_t>(rows) * kWidth),
            .rows = rows,
            .width = kWidth};
      },
      [](const auto& all, const auto& one, const auto& same) { same(all.out, one.out, kWidth); });
  expect_rows_alone(
      [](HostMachine& machine, int first, int rows) {
        const size_t elements = static_cast<size_t>(rows) * kWidth;
        return TandemCudaNormQuantize{
            .x = machine.place(rows_from(random_bf16(kElements, 1), first, rows, kWidth)),
            .residual = machine.place(rows_from(random_bf16(kElements, 2), first, rows, kWidth)),
            .weight = machine.place(random_bf16(kWidth, 3)),
            .out = machine.room<uint16_t>(elements),
            .codes = machine.room<uint8_t>(elements),
            .scales = machine.room<uint8_t>(rows * scale_blocks(kWidth, kMicroscaleBlock)),
            .epsilon = 1e-5f,
            .rows = rows,
            .width = kWidth,
            .block = kMicroscaleBlock};
      },
      [](const auto& all, const auto& one, const auto& same) {
        same(all.out, one.out, kWidth);
        same(all.codes, one.codes, kWidth);
        same(all.scales, one.scales, scale_blocks(kWidth, kMicroscaleBlock));
      });
  expect_rows_alone(
      [](HostMachine& machine, int first, int rows) {
        return TandemCudaLayerNorm{.x = machine.place(rows_from(random_floats(kElements, 1), first, rows, kWidth)),
                                   .weight = machine.place(random_floats(kWidth, 2)),
                                   .bias = machine.place(random_floats(kWidth, 3)),
                                   .out = machine.room<float>(static_cast<size_t>(rows) * kWidth),
                                   .epsilon = 1e-5f,
                                   .rows = rows,
                                   .width = kWidth};
      },
      [](const auto& all, const auto& one, const auto& same) { same(all.out, one.out, kWidth); });
}

TEST(CudaHost, a_row_of_products_in_fp32_and_of_codes_has_the_same_bits_alone_and_among_others) {
  constexpr int kN = 70;
  expect_rows_alone(
      [](HostMachine& machine, int first, int rows) {
        TandemCudaGemmFloat g{};
        g.a = machine.place(rows_from(random_floats(kElements, 1), first, rows, kWidth));
        g.a_row_stride = g.b_row_stride = g.k = kWidth;
        g.a_k_stride = g.b_k_stride = 1;
        g.b = machine.place(random_floats(kN * kWidth, 2));
        g.bias = machine.place(random_floats(kN, 3));
        g.out = machine.room<float>(static_cast<size_t>(rows) * kN);
        g.out_stride = g.n = kN;
        g.m = rows;
        return g;
      },
      [](const auto& all, const auto& one, const auto& same) { same(all.out, one.out, kN); });
  expect_rows_alone(
      [](HostMachine& machine, int first, int rows) {
        const size_t elements = static_cast<size_t>(rows) * kWidth;
        const TandemCudaQuantize q{.x = machine.place(rows_from(random_bf16(kElements, 1), first, rows, kWidth)),
                                   .stride = kWidth,
                                   .by_row = machine.room<uint8_t>(elements),
                                   .row_scales = machine.room<uint8_t>(rows * scale_blocks(kWidth, kMicroscaleBlock)),
                                   .rows = rows,
                                   .columns = kWidth,
                                   .block = kMicroscaleBlock};
        EXPECT_EQ(machine.run(q), 0);
        TandemCudaGemm g{};
        g.a_codes = {.codes = q.by_row, .scales = q.row_scales, .block = kMicroscaleBlock, .block_rows = 1};
        g.b = machine.place(random_bf16(kN * kWidth, 2));
        g.b_row_stride = g.k = kWidth;
        g.b_k_stride = 1;
        g.out = machine.room<uint16_t>(static_cast<size_t>(rows) * kN);
        g.out_stride = g.n = kN;
        g.m = rows;
        return g;
      },
      [](const auto& all, const auto& one, const auto& same) { same(all.out, one.out, kN); });
}

}  // namespace
}  // namespace tandem::kernels::cuda
