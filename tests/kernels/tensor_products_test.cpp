// Products of streams whose kernels are `tensor`: their definition, element by element, whatever tile computes them.
#include <cmath>
#include <random>

#include "kernels/cuda/gemm.cuh"
#include "tests/kernels/cuda_machines.h"

namespace tandem::kernels::cuda {
namespace {

// Magnitudes that differ, so that the order of additions shows.
std::vector<bf16> spread_values(size_t count, uint64_t seed) {
  auto values = random_bf16(count, seed);
  for (size_t i = 0; i < count; ++i)
    values[i] = to_bf16(std::ldexp(to_float(values[i]), static_cast<int>(i * 7 % 13) - 6));
  return values;
}
float element(const std::vector<bf16>& a, size_t a_row, const std::vector<bf16>& b, size_t b_row, int k) {
  std::vector<uint16_t> x(k), y(k);
  for (int i = 0; i < k; ++i) {
    x[i] = a[a_row * k + i].bits;
    y[i] = b[b_row * k + i].bits;
  }
  return tensor_chain<TensorBf16>(x.data(), y.data(), k);
}
// [rows][columns] as [columns][rows], each line `longer` elements longer than it need be.
std::vector<bf16> turned(const std::vector<bf16>& matrix, int rows, int columns, int longer) {
  std::vector<bf16> result(static_cast<size_t>(columns) * (rows + longer), to_bf16(NAN));
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column)
      result[static_cast<size_t>(column) * (rows + longer) + row] = matrix[static_cast<size_t>(row) * columns + column];
  }
  return result;
}

struct Product {
  int m, n, k;
  bool a_turned = false, b_turned = false;
  int longer = 0;  // lines of a turned side: where it is no multiple of eight, nothing can be copied as it lies
};
const Product kProducts[] = {
    {1, 64, 64},                 // of a few rows
    {16, 70, 576},               // several rounds of the ring
    {3, 5, 7},                   // within one piece
    {17, 33, 72},                // some rows
    {64, 64, 128, false, true},  // a gradient of an input
    {30, 40, 50, false, true, 3},
    {40, 70, 65, true, true},  // a gradient of a weight
    {64, 128, 96, true, true, 8},
    {33, 20, 24, true, false},
    {3, 17, 40, false, true},
};

TandemCudaGemm arguments_of(Machine& machine, const Product& p, const std::vector<bf16>& a,
                            const std::vector<bf16>& b) {
  TandemCudaGemm g{};
  g.a = machine.place(p.a_turned ? turned(a, p.m, p.k, p.longer) : a);
  g.a_row_stride = p.a_turned ? 1 : p.k;
  g.a_k_stride = p.a_turned ? p.m + p.longer : 1;
  g.b = machine.place(p.b_turned ? turned(b, p.n, p.k, p.longer) : b);
  g.b_row_stride = p.b_turned ? 1 : p.k;
  g.b_k_stride = p.b_turned ? p.n + p.longer : 1;
  g.m = p.m;
  g.n = p.n;
  g.k = p.k;
  g.out_stride = p.n + 1;
  return g;
}

// Its sums added to what is there, and rounded with a bias and a residual.
void append_results(Machine& machine, const Product& p, Bytes& bytes) {
  const auto a = spread_values(static_cast<size_t>(p.m) * p.k, 1), b = spread_values(static_cast<size_t>(p.n) * p.k, 2);
  const size_t elements = static_cast<size_t>(p.m) * (p.n + 1);
  TandemCudaGemm g = arguments_of(machine, p, a, b);
  g.out_float = machine.place(random_floats(elements, 3));
  g.accumulate = 1;
  EXPECT_EQ(machine.run(g), 0);
  append(bytes, machine.fetch(g.out_float, elements));
  TandemCudaGemm rounded = arguments_of(machine, p, a, b);
  rounded.bias = machine.place(random_bf16(p.n, 4));
  rounded.residual = machine.place(random_bf16(elements, 5));
  rounded.out = machine.room<uint16_t>(elements);
  EXPECT_EQ(machine.run(rounded), 0);
  append(bytes, machine.fetch(rounded.out, elements));
}
Bytes tensor_products_case(Machine& machine) {
  Bytes bytes;
  for (const Product& p : kProducts) append_results(machine, p, bytes);
  return bytes;
}
Bytes as_defined() {
  Bytes bytes;
  for (const Product& p : kProducts) {
    const auto a = spread_values(static_cast<size_t>(p.m) * p.k, 1),
               b = spread_values(static_cast<size_t>(p.n) * p.k, 2);
    const size_t elements = static_cast<size_t>(p.m) * (p.n + 1);
    std::vector<float> sums = random_floats(elements, 3);
    std::vector<uint16_t> rounded(elements, 0xffff);
    const auto bias = random_bf16(p.n, 4), residual = random_bf16(elements, 5);
    for (int row = 0; row < p.m; ++row) {
      for (int column = 0; column < p.n; ++column) {
        const size_t at = static_cast<size_t>(row) * (p.n + 1) + column;
        const float sum = element(a, row, b, column, p.k);
        sums[at] = sums[at] + sum;
        const float with_bias = sum + to_float(bias[column]);
        rounded[at] = to_bf16(with_bias + to_float(residual[at])).bits;
      }
    }
    append(bytes, sums);
    append(bytes, rounded);
  }
  return bytes;
}
TANDEM_CUDA_TENSOR_TESTS(tensor_products)
TEST(CudaHost, tensor_products_are_chains_of_sixteen) {
  HostMachine machine(false, true);
  EXPECT_TRUE(tensor_products_case(machine) == as_defined());
}

// Every tile that a product may be computed by, its sides as they may lie.
template <typename Tile>
void expect_bits_of_a_tile(bool a_turned, bool b_turned) {
  const Product p{150, 140, 200, a_turned, b_turned, a_turned ? 2 : 4};
  const auto a = spread_values(static_cast<size_t>(p.m) * p.k, 1), b = spread_values(static_cast<size_t>(p.n) * p.k, 2);
  for (const bool descending : {false, true}) {
    HostMachine machine(false, true);
    TandemCudaGemm g = arguments_of(machine, p, a, b);
    g.out_float = machine.room<float>(static_cast<size_t>(p.m) * (p.n + 1));
    HostExecution execution(descending, true);
    const GemmKernel<TandemCudaGemm, Tile> kernel{g};
    ASSERT_EQ(start(execution, kernel, kernel.tile().blocks()), 0);
    const auto got = machine.fetch(g.out_float, static_cast<size_t>(p.m) * (p.n + 1));
    for (int row = 0; row < p.m; row += 7) {
      for (int column = 0; column < p.n; column += 3)
        ASSERT_EQ(got[row * (p.n + 1) + column], element(a, row, b, column, p.k)) << row << ", " << column;
    }
  }
}
TEST(CudaHost, every_tile_of_a_tensor_product_gives_its_bits) {
  expect_bits_of_a_tile<TensorTile<16, 64, 1, 4, true, true, 5>>(false, false);
  expect_bits_of_a_tile<TensorTile<64, 64, 2, 2, true, true>>(false, false);
  expect_bits_of_a_tile<TensorTile<64, 64, 2, 2, true, false>>(false, true);
  expect_bits_of_a_tile<TensorTile<64, 64, 2, 2, false, false>>(true, true);
  expect_bits_of_a_tile<TensorTile<128, 128, 2, 4, true, true>>(false, false);
  expect_bits_of_a_tile<TensorTile<128, 128, 2, 4, true, false>>(false, true);
  expect_bits_of_a_tile<TensorTile<128, 128, 2, 4, false, false>>(true, true);
  expect_bits_of_a_tile<TensorTile<128, 128, 2, 4, true, true>>(true, false);
}

// As many tiles as keep a GPU busy: there another instruction multiplies, and bias, residual and sum are its own.
Bytes tensor_products_of_many_tiles_case(Machine& machine) {
  Bytes bytes;
  for (const auto& [a_turned, b_turned] : {std::pair{false, false}, {false, true}, {true, true}, {true, false}})
    append_results(machine, {1290, 2570, 72, a_turned, b_turned, a_turned ? 6 : 14}, bytes);  // lines of eights
  return bytes;
}
TEST(CudaDevice, tensor_products_of_many_tiles_give_the_bits_of_the_host) {
  expect_bits_of_the_host(tensor_products_of_many_tiles_case, true);
}

TEST(CudaHost, a_sum_of_terms_taken_apart_is_the_sum_of_a_tensor_core) {
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    uint16_t a[16], b[16];
    const int spread = 1 + round % 120;
    for (int i = 0; i < 16; ++i) {
      const auto value = [&] {
        const uint32_t exponent = 127 - spread / 2 + random() % spread;
        return static_cast<uint16_t>(random() % 5 == 0 ? random() & 0x80ffu : (random() & 0x807fu) | exponent << 7);
      };
      a[i] = value();
      b[i] = value();
    }
    const float start = std::ldexp(static_cast<float>(random()), static_cast<int>(random() % spread) - 32 - spread / 2);
    const float expected = tensor_sum<TensorBf16>(a, b, 16, round % 3 == 0 ? 0 : start);
    const float got = tensor_sum_of_terms(tensor_terms(a), tensor_terms(b), round % 3 == 0 ? 0 : start);
    ASSERT_EQ(bits_of(got), bits_of(expected)) << round;
  }
}

// Weights of groups of rows, as they are and as codes; gradients of weights by groups.
Bytes tensor_groups_case(Machine& machine) {
  const int groups = 3, n = 40, k = 136;
  const std::vector<int32_t> offsets = {0, 5, 5, 70};
  const int m = offsets.back();
  const auto a = spread_values(static_cast<size_t>(m) * k, 1);
  const auto b = spread_values(static_cast<size_t>(groups) * n * k, 2);
  Bytes bytes;
  TandemCudaGroupedGemm g{.a = machine.place(a), .a_stride = k, .offsets = machine.place(offsets), .out_stride = n};
  g.groups = groups;
  g.m = m;
  g.n = n;
  g.k = k;
  g.b = machine.place(b);
  g.out = machine.room<uint16_t>(static_cast<size_t>(m) * n);
  EXPECT_EQ(machine.run(g), 0);
  append(bytes, machine.fetch(g.out, static_cast<size_t>(m) * n));

  const int blocks = (k + 127) / 128;
  auto* codes = machine.room<uint8_t>(b.size());
  auto* scales = machine.room<uint8_t>(static_cast<size_t>(groups) * blocks);
  auto* plain = machine.room<uint16_t>(b.size());
  for (int group = 0; group < groups; ++group) {
    const size_t at = static_cast<size_t>(group) * n * k;
    EXPECT_EQ(machine.run(TandemCudaQuantizeWeight{g.b + at, codes + at, scales + group * blocks, n, k}), 0);
    EXPECT_EQ(machine.run(TandemCudaExpand{codes + at, scales + group * blocks, plain + at, n, k, 128, 128}), 0);
  }
  TandemCudaGroupedGemm coded = g;
  coded.b = nullptr;
  coded.b_codes = {codes, scales, 128, 128};
  coded.out = machine.room<uint16_t>(static_cast<size_t>(m) * n);
  EXPECT_EQ(machine.run(coded), 0);
  append(bytes, machine.fetch(coded.out, static_cast<size_t>(m) * n));
  g.b = plain;
  g.out = machine.room<uint16_t>(static_cast<size_t>(m) * n);
  EXPECT_EQ(machine.run(g), 0);
  EXPECT_EQ(machine.fetch(g.out, static_cast<size_t>(m) * n), machine.fetch(coded.out, static_cast<size_t>(m) * n));

  TandemCudaKGroupedGemm by_k{};
  by_k.a = g.a;
  by_k.b = machine.place(spread_values(static_cast<size_t>(m) * n, 3));
  by_k.offsets = g.offsets;
  by_k.groups = groups;
  by_k.rows = m;
  by_k.m = k;
  by_k.n = n;
  by_k.out = machine.place(random_floats(static_cast<size_t>(groups) * k * n, 4));
  EXPECT_EQ(machine.run(by_k), 0);
  append(bytes, machine.fetch(by_k.out, static_cast<size_t>(groups) * k * n));
  return bytes;
}
TANDEM_CUDA_TENSOR_TESTS(tensor_groups)
TEST(CudaHost, a_row_of_a_tensor_group_has_the_bits_of_its_product_alone) {
  HostMachine machine(false, true);
  const int n = 40, k = 136;
  const auto a = spread_values(size_t{70} * k, 1), b = spread_values(size_t{3} * n * k, 2);
  const Bytes all = tensor_groups_case(machine);
  for (const int row : {0, 4, 5, 69}) {
    const std::vector<bf16> weight(b.begin() + (row < 5 ? 0 : 2) * n * k, b.begin() + (row < 5 ? 1 : 3) * n * k);
    for (int column = 0; column < n; ++column) {
      uint16_t got;
      std::memcpy(&got, all.data() + (static_cast<size_t>(row) * n + column) * sizeof got, sizeof got);
      ASSERT_EQ(got, to_bf16(element(a, row, weight, column, k)).bits) << row << ", " << column;
    }
  }
}

}  // namespace
}  // namespace tandem::kernels::cuda
