#include <cmath>

#include "kernels/gemm.h"
#include "tests/kernels/cuda_machines.h"

namespace tandem::kernels::cuda {
namespace {

struct Matrices {
  int m, n, k;
  std::vector<bf16> a = random_bf16(static_cast<size_t>(m) * k, 1);
  std::vector<bf16> b = random_bf16(static_cast<size_t>(n) * k, 2);
  std::vector<bf16> residual = random_bf16(static_cast<size_t>(m) * n, 3);
};

TandemCudaGemm arguments(Machine& machine, const Matrices& x) {
  return {.a = machine.place(x.a),
          .a_row_stride = x.k,
          .a_k_stride = 1,
          .b = machine.place(x.b),
          .b_row_stride = x.k,
          .b_k_stride = 1,
          .out_stride = x.n,
          .m = x.m,
          .n = x.n,
          .k = x.k};
}

std::vector<bf16> transposed(const std::vector<bf16>& matrix, int rows, int columns) {
  std::vector<bf16> result(matrix.size());
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) result[column * rows + row] = matrix[row * columns + column];
  }
  return result;
}

// Products as they lie and from the other side, with a residual, and added to what is there.
Bytes gemm_case(Machine& machine) {
  const Matrices x{70, 130, 50};
  const size_t elements = x.residual.size();
  Bytes bytes;
  TandemCudaGemm g = arguments(machine, x);
  g.residual = machine.place(x.residual);
  g.out = machine.room<uint16_t>(elements);
  EXPECT_EQ(machine.run(g), 0);
  append(bytes, machine.fetch(g.out, elements));

  TandemCudaGemm strided = arguments(machine, x);
  strided.a = machine.place(transposed(x.a, x.m, x.k));
  strided.a_row_stride = 1;
  strided.a_k_stride = x.m;
  strided.b = machine.place(transposed(x.b, x.n, x.k));
  strided.b_row_stride = 1;
  strided.b_k_stride = x.n;
  strided.out_float = machine.place(random_floats(elements, 4));
  strided.accumulate = 1;
  EXPECT_EQ(machine.run(strided), 0);
  append(bytes, machine.fetch(strided.out_float, elements));
  return bytes;
}
TANDEM_CUDA_CASE_TESTS(gemm)

TEST(CudaHost, gemm_gives_the_bits_of_the_avx2_kernel) {
  for (const Matrices& x : {Matrices{1, 1, 2}, Matrices{65, 129, 66}, Matrices{3, 64, 200}, Matrices{128, 7, 16}}) {
    const size_t elements = x.residual.size();
    Stream cpu = std::move(*Stream::cpu(2, Isa::kAvx2));
    std::vector<bf16> packed(packed_size(x.n, x.k)), expected(elements);
    ASSERT_TRUE(pack(cpu, x.b.data(), x.n, x.k, packed.data()));
    ASSERT_TRUE(kernels::gemm(cpu, {.a = x.a.data(),
                                    .a_stride = static_cast<size_t>(x.k),
                                    .b = packed.data(),
                                    .residual = x.residual.data(),
                                    .out = expected.data(),
                                    .out_stride = static_cast<size_t>(x.n),
                                    .m = x.m,
                                    .n = x.n,
                                    .k = x.k}));
    const std::vector<float> start = random_floats(elements, 4);
    std::vector<float> expected_sum = start;
    ASSERT_TRUE(kernels::gemm(cpu, {.a = x.a.data(),
                                    .a_stride = static_cast<size_t>(x.k),
                                    .b = packed.data(),
                                    .out_float = expected_sum.data(),
                                    .out_stride = static_cast<size_t>(x.n),
                                    .accumulate = true,
                                    .m = x.m,
                                    .n = x.n,
                                    .k = x.k}));
    HostMachine machine;
    TandemCudaGemm g = arguments(machine, x);
    g.residual = machine.place(x.residual);
    g.out = machine.room<uint16_t>(elements);
    ASSERT_EQ(machine.run(g), 0);
    EXPECT_EQ(as_bf16(machine.fetch(g.out, elements)), expected) << x.m << " " << x.n << " " << x.k;
    TandemCudaGemm sum = arguments(machine, x);
    sum.out_float = machine.place(start);
    sum.accumulate = 1;
    ASSERT_EQ(machine.run(sum), 0);
    EXPECT_EQ(machine.fetch(sum.out_float, elements), expected_sum) << x.m << " " << x.n << " " << x.k;
  }
}

TEST(CudaHost, a_row_of_a_product_has_the_same_bits_alone_and_among_others_however_its_operands_lie) {
  const Matrices x{100, 70, 90};
  HostMachine machine;
  TandemCudaGemm whole = arguments(machine, x);
  whole.out_float = machine.room<float>(x.residual.size());
  ASSERT_EQ(machine.run(whole), 0);
  const std::vector<float> expected = machine.fetch(whole.out_float, x.residual.size());
  for (const int row : {0, 1, 63, 64, 99}) {
    TandemCudaGemm one = whole;
    one.a += row * x.k;
    one.m = 1;
    one.out_float = machine.room<float>(x.n);
    ASSERT_EQ(machine.run(one), 0);
    EXPECT_EQ(machine.fetch(one.out_float, x.n),
              std::vector<float>(expected.begin() + row * x.n, expected.begin() + (row + 1) * x.n));
  }
  TandemCudaGemm strided = whole;
  strided.b = machine.place(transposed(x.b, x.n, x.k));
  strided.b_row_stride = 1;
  strided.b_k_stride = x.n;
  strided.out_float = machine.room<float>(x.residual.size());
  ASSERT_EQ(machine.run(strided), 0);
  EXPECT_EQ(machine.fetch(strided.out_float, x.residual.size()), expected);
}

TEST(CudaHost, a_product_over_nothing_is_zero_and_one_of_nothing_writes_nothing) {
  HostMachine machine;
  const Matrices x{3, 5, 2};
  TandemCudaGemm g = arguments(machine, x);
  g.out_float = machine.room<float>(15);
  g.k = 0;
  ASSERT_EQ(machine.run(g), 0);
  EXPECT_EQ(machine.fetch(g.out_float, 15), std::vector<float>(15, 0.0f));
  g.out_float = machine.room<float>(15);
  g.m = 0;
  ASSERT_EQ(machine.run(g), 0);
  EXPECT_TRUE(std::isnan(machine.fetch(g.out_float, 15)[0]));
}

TEST(CudaHost, gemm_refuses_arguments_that_do_not_go_together) {
  HostMachine machine;
  const Matrices x{3, 5, 4};
  TandemCudaGemm good = arguments(machine, x);
  good.out_float = machine.room<float>(15);
  ASSERT_EQ(machine.run(good), 0);
  const auto code = [&](auto change) {
    TandemCudaGemm g = good;
    change(g);
    return machine.run(g);
  };
  EXPECT_EQ(code([](auto& g) { g.a = nullptr; }), kTandemCudaNull);
  EXPECT_EQ(code([](auto& g) { g.out_float = nullptr; }), kTandemCudaNull);
  EXPECT_EQ(code([](auto& g) { g.m = -1; }), kTandemCudaSize);
  EXPECT_EQ(code([](auto& g) { g.m = g.n = INT32_MAX, g.out_stride = INT32_MAX; }), kTandemCudaSize);
  EXPECT_EQ(code([](auto& g) { g.a_row_stride = 3; }), kTandemCudaStride);
  EXPECT_EQ(code([](auto& g) { g.b_k_stride = 2; }), kTandemCudaStride);
  EXPECT_EQ(code([](auto& g) { g.out_stride = 4; }), kTandemCudaStride);
  EXPECT_EQ(code([&](auto& g) { g.out = machine.room<uint16_t>(15); }), kTandemCudaShape);
  EXPECT_EQ(code([&](auto& g) { g.residual = machine.room<uint16_t>(15); }), kTandemCudaShape);
}

}  // namespace
}  // namespace tandem::kernels::cuda
