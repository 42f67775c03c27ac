#include "kernels/gemm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/reference/gemm.h"
#include "kernels/reference/products.h"
#include "tests/kernels/support.h"

namespace tandem::kernels {
namespace {

class GemmTest : public EachIsa {};
FOR_EACH_ISA(GemmTest);

std::vector<float> product(Stream& stream, const std::vector<bf16>& a, const std::vector<bf16>& packed, int m, int n,
                           int k) {
  std::vector<float> out(static_cast<size_t>(m) * n);
  EXPECT_TRUE(gemm(stream, {.a = a.data(),
                            .a_stride = static_cast<size_t>(k),
                            .b = packed.data(),
                            .out_float = out.data(),
                            .out_stride = static_cast<size_t>(n),
                            .m = m,
                            .n = n,
                            .k = k}));
  return out;
}

TEST_P(GemmTest, is_within_the_rounding_bound_of_the_exact_product) {
  Stream cpu = stream();
  for (const auto& [m, n, k] : {std::tuple{7, 960, 576}, {33, 50, 64}, {1, 576, 1536}, {19, 130, 2}}) {
    const auto a = random_bf16(static_cast<size_t>(m) * k, 1), weight = random_bf16(static_cast<size_t>(n) * k, 2);
    std::vector<bf16> packed(packed_size(n, k));
    ASSERT_TRUE(pack(cpu, weight.data(), n, k, packed.data()));
    const auto out = product(cpu, a, packed, m, n, k);
    const auto exact = reference::gemm(a, weight, m, n, k);
    for (size_t i = 0; i < out.size(); ++i) {
      // k roundings of fp32, each at most 2^-24 of a partial sum that never exceeds the sum of magnitudes.
      ASSERT_NEAR(out[i], exact.sums[i], k * 0x1p-24 * exact.magnitudes[i] + 1e-30) << "element " << i;
    }
  }
}

// Ordinary values; or values of which some are denormal or give denormals; or all there are, infinities and NaN too.
std::vector<bf16> values_of_kind(int kind, size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<bf16> values(count);
  for (bf16& value : values) {
    const auto bits = static_cast<uint16_t>(random.below(0x10000));
    const auto exponent = kind == 0 ? 120 + random.below(16) : random.chance(0.3) ? 0 : 56 + random.below(16);
    value.bits = kind == 2 && random.chance(0.02) ? bits : static_cast<uint16_t>((bits & 0x807fu) | exponent << 7);
  }
  return values;
}

TEST_P(GemmTest, adds_in_the_promised_order_bit_by_bit) {
  Stream cpu = stream();
  for (const auto& [m, n, k] : {std::tuple{17, 70, 576}, {3, 64, 70}, {1, 5, 2}, {40, 130, 32}}) {
    for (int kind = 0; kind < 3; ++kind) {
      const auto a = values_of_kind(kind, static_cast<size_t>(m) * k, 30),
                 weight = values_of_kind(kind, static_cast<size_t>(n) * k, 31);
      std::vector<bf16> packed(packed_size(n, k));
      ASSERT_TRUE(pack(cpu, weight.data(), n, k, packed.data()));
      const auto out = product(cpu, a, packed, m, n, k);
      for (int row = 0; row < m; ++row) {
        for (int column = 0; column < n; ++column) {
          const float got = out[static_cast<size_t>(row) * n + column];
          const float expected = reference::product_element(cpu.isa(), &a[row * k], &weight[column * k], k);
          ASSERT_TRUE(std::isnan(expected) ? std::isnan(got)
                                           : std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(expected))
              << got << " instead of " << expected << " at " << row << "," << column << ", k " << k << ", kind "
              << kind;
        }
      }
    }
  }
}

TEST_P(GemmTest, a_row_has_the_same_bits_alone_and_among_others_at_any_place_with_any_threads) {
  const int n = 200, k = 576, largest = 1024;
  Stream one = stream(1), three = stream(3);
  const auto a = random_bf16(static_cast<size_t>(largest) * k, 3), weight = random_bf16(static_cast<size_t>(n) * k, 4);
  std::vector<bf16> packed(packed_size(n, k));
  ASSERT_TRUE(pack(one, weight.data(), n, k, packed.data()));
  const auto whole = product(three, a, packed, largest, n, k);
  for (const int m : {1, 2, 3, 16, 17, 33, 64, 128, 257}) {
    for (const int first : {0, 5, largest - m}) {
      const std::vector<bf16> rows(a.begin() + first * k, a.begin() + (first + m) * k);
      const auto part = product(m % 2 ? one : three, rows, packed, m, n, k);
      ASSERT_EQ(0, std::memcmp(part.data(), whole.data() + static_cast<size_t>(first) * n, part.size() * sizeof(float)))
          << "m = " << m << ", first row " << first;
    }
  }
}

TEST_P(GemmTest, packing_a_transpose_gives_the_same_panels) {
  Stream cpu = stream();
  const int n = 100, k = 70;
  const auto weight = random_bf16(n * k, 5);
  std::vector<bf16> transposed(n * k);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < k; ++j) transposed[j * n + i] = weight[i * k + j];
  }
  std::vector<bf16> a(packed_size(n, k)), b(packed_size(n, k));
  ASSERT_TRUE(pack(cpu, weight.data(), n, k, a.data()));
  ASSERT_TRUE(pack_transposed(cpu, transposed.data(), k, n, b.data()));
  EXPECT_TRUE(same_bits(a.data(), b.data(), a.size()));
}

TEST_P(GemmTest, packing_a_transpose_of_fp32_gives_the_same_panels) {
  Stream cpu = stream();
  for (const auto& [n, k] : {std::pair{100, 70}, {64, 3}, {1, 1}, {65, 2}}) {
    std::vector<float> weight(static_cast<size_t>(n) * k), transposed(weight.size());
    Random random(6);
    for (float& value : weight) value = static_cast<float>(random.normal());
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < k; ++j) transposed[j * n + i] = weight[i * k + j];
    }
    std::vector<float> a(packed_size(n, k)), b(packed_size(n, k), 1.0f);
    ASSERT_TRUE(pack(cpu, weight.data(), n, k, a.data()));
    ASSERT_TRUE(pack_transposed(cpu, transposed.data(), k, n, b.data()));
    EXPECT_EQ(a, b) << n << " x " << k;
  }
}

TEST_P(GemmTest, adds_a_residual_or_the_old_value_once_after_the_sum) {
  Stream cpu = stream();
  const int m = 5, n = 72, k = 64;
  const auto a = random_bf16(m * k, 6), weight = random_bf16(n * k, 7), residual = random_bf16(m * n, 8);
  std::vector<bf16> packed(packed_size(n, k)), out(m * n);
  ASSERT_TRUE(pack(cpu, weight.data(), n, k, packed.data()));
  const auto plain = product(cpu, a, packed, m, n, k);
  ASSERT_TRUE(gemm(cpu, {.a = a.data(),
                         .a_stride = k,
                         .b = packed.data(),
                         .residual = residual.data(),
                         .out = out.data(),
                         .out_stride = n,
                         .m = m,
                         .n = n,
                         .k = k}));
  auto sums = random_floats(m * n, 9);
  const auto old = sums;
  ASSERT_TRUE(gemm(cpu, {.a = a.data(),
                         .a_stride = k,
                         .b = packed.data(),
                         .out_float = sums.data(),
                         .out_stride = n,
                         .accumulate = true,
                         .m = m,
                         .n = n,
                         .k = k}));
  for (int i = 0; i < m * n; ++i) {
    ASSERT_EQ(out[i].bits, to_bf16(plain[i] + to_float(residual[i])).bits);
    ASSERT_EQ(sums[i], old[i] + plain[i]);
  }
}

TEST_P(GemmTest, adds_a_bias_once_after_the_sum_and_before_the_residual) {
  Stream cpu = stream();
  const int m = 9, n = 75, k = 64;
  const auto a = random_bf16(m * k, 6), weight = random_bf16(n * k, 7), residual = random_bf16(m * n, 8),
             bias = random_bf16(n, 9);
  std::vector<bf16> packed(packed_size(n, k)), out(m * n);
  ASSERT_TRUE(pack(cpu, weight.data(), n, k, packed.data()));
  const auto plain = product(cpu, a, packed, m, n, k);
  ASSERT_TRUE(gemm(cpu, {.a = a.data(),
                         .a_stride = k,
                         .b = packed.data(),
                         .bias = bias.data(),
                         .residual = residual.data(),
                         .out = out.data(),
                         .out_stride = n,
                         .m = m,
                         .n = n,
                         .k = k}));
  for (int i = 0; i < m * n; ++i) {
    ASSERT_EQ(out[i].bits, to_bf16((plain[i] + to_float(bias[i % n])) + to_float(residual[i])).bits);
  }
}

TEST_P(GemmTest, takes_its_left_side_packed_too) {
  Stream cpu = stream();
  for (const auto& [m, n, k] : {std::tuple{130, 72, 64}, {64, 64, 7}, {5, 3, 2}}) {
    const int even = (k + 1) / 2 * 2;
    const auto left = random_bf16(k * m, 10), right = random_bf16(k * n, 11);  // [k][m] and [k][n]: a weight gradient
    std::vector<bf16> packed_left(packed_size(m, even)), packed_right(packed_size(n, even)), rows(m * even);
    ASSERT_TRUE(pack_transposed(cpu, left.data(), k, m, packed_left.data()));
    ASSERT_TRUE(pack_transposed(cpu, right.data(), k, n, packed_right.data()));
    for (int i = 0; i < k; ++i) {
      for (int row = 0; row < m; ++row) rows[row * even + i] = left[i * m + row];
    }
    std::vector<float> out(static_cast<size_t>(m) * n);
    ASSERT_TRUE(gemm(cpu, {.a = packed_left.data(),
                           .a_packed = true,
                           .b = packed_right.data(),
                           .out_float = out.data(),
                           .out_stride = static_cast<size_t>(n),
                           .m = m,
                           .n = n,
                           .k = even}));
    EXPECT_EQ(out, product(cpu, rows, packed_right, m, n, even));
  }
}

TEST(Tiles, of_the_processor_and_of_the_model_give_the_same_bits) {
  const auto isas = supported_isas();
  if (std::find(isas.begin(), isas.end(), Isa::kAmxBf16) == isas.end()) GTEST_SKIP() << "no AMX here";
  Stream processor = TestedIsa{Isa::kAmxBf16}.stream(2), model = TestedIsa{Isa::kAmxBf16, true}.stream(2);
  for (const auto& [m, n, k] : {std::tuple{1, 64, 576}, {16, 130, 70}, {37, 100, 1536}}) {
    // Values of every size, denormals among them.
    const auto a = random_bf16(static_cast<size_t>(m) * k, 20, 1e-20f),
               weight = random_bf16(static_cast<size_t>(n) * k, 21, 1e-18f);
    std::vector<bf16> packed(packed_size(n, k));
    ASSERT_TRUE(pack(model, weight.data(), n, k, packed.data()));
    EXPECT_EQ(product(processor, a, packed, m, n, k), product(model, a, packed, m, n, k));
  }
}

TEST(GemmArguments, are_checked_and_the_wrong_one_is_named) {
  Stream cpu = std::move(*Stream::cpu(1));
  bf16 a[4] = {};
  float out[4];
  Gemm wrong{.a = a, .a_stride = 3, .b = a, .out_float = out, .out_stride = 1, .m = 1, .n = 1, .k = 3};
  EXPECT_EQ(gemm(cpu, wrong).message(), "gemm: k must be even");
  wrong.k = 2;
  wrong.out_float = nullptr;
  EXPECT_EQ(gemm(cpu, wrong).message(), "gemm: exactly one of out and out_float must be given");
  wrong.out_float = out;
  wrong.m = -1;
  EXPECT_EQ(gemm(cpu, wrong).message(), "gemm: m is -1, expected 0 to 2^31");
  EXPECT_EQ(Stream::cpu(0).error().code(), Code::kInvalid);
}

}  // namespace
}  // namespace tandem::kernels
