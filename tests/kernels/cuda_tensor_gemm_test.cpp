// Products with the sums of tensor cores: their definition, and on a GPU that has them their bits.
#include <cmath>

#include "base/random.h"
#include "kernels/quantize.h"
#include "kernels/reference/tensor_cores.h"
#include "tests/kernels/cuda_machines.h"

namespace tandem::kernels::cuda {
namespace {

// Parts of a tile and several tiles; a k that ends within an instruction, and within a stage.
struct Shape {
  int m, n, k;
};
constexpr Shape kShapes[] = {{1, 1, 8}, {3, 5, 24}, {130, 259, 72}, {64, 33, 200}, {129, 512, 320}};

// Magnitudes that differ a lot.
std::vector<bf16> spread(size_t count, uint64_t seed) {
  auto values = random_bf16(count, seed);
  for (size_t i = 0; i < count; ++i)
    values[i] = to_bf16(std::ldexp(to_float(values[i]), static_cast<int>(i * 7 % 31) - 15));
  return values;
}

// The result of `g`, which lacks its target alone, in rows that are one longer than they need be.
template <typename T, typename Arguments>
std::vector<T> result_of(Machine& machine, Arguments g) {
  g.out_stride = g.n + 1;
  const size_t elements = static_cast<size_t>(g.m) * (g.n + 1);
  T* out = machine.room<T>(elements);
  if constexpr (std::is_same_v<T, float>)
    g.out_float = out;
  else
    g.out = out;
  EXPECT_EQ(machine.run(g), 0);
  return machine.fetch(out, elements);
}
template <typename Product>
Bytes both_results(Machine& machine, std::span<const Shape> shapes, const Product& product) {
  Bytes bytes;
  for (const Shape& s : shapes) {
    append(bytes, result_of<float>(machine, product(machine, s)));
    append(bytes, result_of<uint16_t>(machine, product(machine, s)));
  }
  return bytes;
}

TandemCudaTensorGemm bf16_product(Machine& machine, const Shape& s) {
  return {.a = machine.place(spread(static_cast<size_t>(s.m) * s.k, 1)),
          .b = machine.place(spread(static_cast<size_t>(s.n) * s.k, 2)),
          .m = s.m,
          .n = s.n,
          .k = s.k};
}
Bytes tensor_gemm_case(Machine& machine) { return both_results(machine, kShapes, bf16_product); }
TANDEM_CUDA_CASE_TESTS(tensor_gemm)

TEST(CudaHost, tensor_gemm_adds_as_the_reference_of_tensor_cores_does) {
  HostMachine machine;
  for (const Shape& s : kShapes) {
    const auto a = spread(static_cast<size_t>(s.m) * s.k, 1), b = spread(static_cast<size_t>(s.n) * s.k, 2);
    const auto got = result_of<float>(machine, bf16_product(machine, s));
    for (int row = 0; row < s.m; row += 1 + s.m / 9) {
      for (int column = 0; column < s.n; column += 1 + s.n / 9) {
        float sum = 0;
        for (int k = 0; k < s.k; k += 16) {
          std::vector<bf16> x(16), y(16);
          std::copy_n(a.begin() + static_cast<ptrdiff_t>(row) * s.k + k, std::min(16, s.k - k), x.begin());
          std::copy_n(b.begin() + static_cast<ptrdiff_t>(column) * s.k + k, std::min(16, s.k - k), y.begin());
          sum = reference::tensor_core_sum<bf16>(reference::kHopperBf16, x, y, sum);
        }
        ASSERT_EQ(got[static_cast<size_t>(row) * (s.n + 1) + column], sum) << s.k << ": " << row << ", " << column;
      }
    }
  }
}

// Blocks of k that are whole and one that is not; columns of several scales.
constexpr Shape kFp8Shapes[] = {{1, 1, 16}, {3, 5, 144}, {130, 259, 272}, {64, 33, 400}};

struct Fp8Side {
  std::vector<uint8_t> codes, scales;
  // `block_rows` rows have one scale.
  Fp8Side(int rows, int k, int block_rows, uint64_t seed) {
    Random random(seed);
    codes.resize(static_cast<size_t>(rows) * k);
    for (auto& code : codes) {
      code = static_cast<uint8_t>(random.below(256));
      if ((code & 0x7f) == 0x7f) code ^= 1;  // no NaN
    }
    scales.resize(scale_blocks(rows, block_rows) * scale_blocks(k, kScaleBlock));
    for (auto& scale : scales) scale = static_cast<uint8_t>(120 + random.below(9));
  }
};

TandemCudaTensorGemmFp8 fp8_product(Machine& machine, const Shape& s) {
  const Fp8Side a(s.m, s.k, 1, 3), b(s.n, s.k, kScaleBlock, 4);
  return {.a = machine.place(a.codes),
          .a_scales = machine.place(a.scales),
          .b = machine.place(b.codes),
          .b_scales = machine.place(b.scales),
          .m = s.m,
          .n = s.n,
          .k = s.k};
}
Bytes tensor_gemm_fp8_case(Machine& machine) { return both_results(machine, kFp8Shapes, fp8_product); }
TANDEM_CUDA_CASE_TESTS(tensor_gemm_fp8)

TEST(CudaHost, tensor_gemm_fp8_adds_as_the_reference_of_tensor_cores_does) {
  HostMachine machine;
  for (const Shape& s : kFp8Shapes) {
    const Fp8Side a(s.m, s.k, 1, 3), b(s.n, s.k, kScaleBlock, 4);
    const auto got = result_of<float>(machine, fp8_product(machine, s));
    const int blocks = static_cast<int>(scale_blocks(s.k, kScaleBlock));
    const auto terms_of = [&](const Fp8Side& side, int row, int k) {
      std::vector<e4m3> terms(32);
      for (int i = 0; i < 32 && k + i < s.k; ++i) terms[i] = {side.codes[static_cast<size_t>(row) * s.k + k + i]};
      return terms;
    };
    for (int row = 0; row < s.m; row += 1 + s.m / 9) {
      for (int column = 0; column < s.n; column += 1 + s.n / 9) {
        float sum = 0;
        for (int block = 0; block < blocks; ++block) {
          float products = 0;
          for (int k = block * kScaleBlock; k < std::min(s.k, (block + 1) * kScaleBlock); k += 32) {
            const auto x = terms_of(a, row, k), y = terms_of(b, column, k);
            products = reference::tensor_core_sum<e4m3>(reference::kHopperE4m3, x, y, products);
          }
          const float scale = std::ldexp(
              1.0f, a.scales[row * blocks + block] - 127 + b.scales[column / kScaleBlock * blocks + block] - 127);
          sum = std::fma(products, scale, sum);
        }
        ASSERT_EQ(got[static_cast<size_t>(row) * (s.n + 1) + column], sum) << s.k << ": " << row << ", " << column;
      }
    }
  }
}

TEST(CudaHost, tensor_gemm_refuses_what_it_cannot_read) {
  HostMachine machine;
  const auto code = [&](const std::function<void(TandemCudaTensorGemm&)>& spoil) {
    TandemCudaTensorGemm g{.a = machine.room<uint16_t>(64),
                           .b = machine.room<uint16_t>(64),
                           .out = machine.room<uint16_t>(16),
                           .out_stride = 4,
                           .m = 4,
                           .n = 4,
                           .k = 16};
    spoil(g);
    return machine.run(g);
  };
  EXPECT_EQ(code([](auto&) {}), 0);
  EXPECT_EQ(code([](auto& g) { g.k = 0; }), 0);
  EXPECT_EQ(code([](auto& g) { g.a = nullptr; }), kTandemCudaNull);
  EXPECT_EQ(code([](auto& g) { g.out = nullptr; }), kTandemCudaNull);
  EXPECT_EQ(code([](auto& g) { g.m = -1; }), kTandemCudaSize);
  EXPECT_EQ(code([](auto& g) { g.out_stride = 3; }), kTandemCudaStride);
  EXPECT_EQ(code([](auto& g) { g.k = 12; }), kTandemCudaShape);
  EXPECT_EQ(code([](auto& g) { ++g.a; }), kTandemCudaShape);
  EXPECT_EQ(code([&](auto& g) { g.out_float = machine.room<float>(16); }), kTandemCudaShape);
}

}  // namespace
}  // namespace tandem::kernels::cuda
