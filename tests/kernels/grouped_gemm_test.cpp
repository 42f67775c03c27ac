// Products of groups of rows with a weight each: the bits of each group's product alone.
#include <cstring>

#include "kernels/experts.h"
#include "tests/kernels/support.h"

namespace tandem::kernels {
namespace {

class GroupedGemmTest : public EachIsa {};
FOR_EACH_ISA(GroupedGemmTest);

// Experts of which some get many rows, some few and some none.
struct Grouped {
  static constexpr int kGroups = 6, kN = 130, kK = 70;
  const std::vector<int32_t> offsets = {0, 1, 1, 150, 153, 170, 170};
  const int rows = 170;
  std::vector<bf16> a = random_bf16(170 * kK, 50), weights = random_bf16(kGroups * kN * kK, 51), packed;

  explicit Grouped(Stream& stream) : packed(kGroups * packed_size(kN, kK)) {
    for (int g = 0; g < kGroups; ++g) {
      EXPECT_TRUE(pack(stream, &weights[g * kN * kK], kN, kK, &packed[g * packed_size(kN, kK)]));
    }
  }
  std::vector<bf16> product(Stream& stream) const {
    std::vector<bf16> out(rows * kN);
    EXPECT_TRUE(grouped_gemm(stream, {.a = a.data(),
                                      .a_stride = kK,
                                      .offsets = offsets.data(),
                                      .b = packed.data(),
                                      .out = out.data(),
                                      .out_stride = kN,
                                      .groups = kGroups,
                                      .m = rows,
                                      .n = kN,
                                      .k = kK}));
    return out;
  }
};

TEST_P(GroupedGemmTest, a_row_of_a_grouped_product_has_the_bits_of_its_experts_product_alone) {
  Stream one = stream(1), three = stream(3);
  const Grouped grouped(one);
  const auto out = grouped.product(one);
  EXPECT_TRUE(same_bits(out.data(), grouped.product(three).data(), out.size()));
  constexpr int kN = Grouped::kN, kK = Grouped::kK;
  for (int g = 0; g < Grouped::kGroups; ++g) {
    for (int row = grouped.offsets[g]; row < grouped.offsets[g + 1]; ++row) {
      std::vector<bf16> alone(kN);
      ASSERT_TRUE(gemm(one, {.a = &grouped.a[row * kK],
                             .a_stride = kK,
                             .b = &grouped.packed[g * packed_size(kN, kK)],
                             .out = alone.data(),
                             .out_stride = kN,
                             .m = 1,
                             .n = kN,
                             .k = kK}));
      ASSERT_TRUE(same_bits(alone.data(), &out[row * kN], kN)) << "group " << g << ", row " << row;
    }
  }
}

TEST_P(GroupedGemmTest, heads_with_matrices_of_their_own_have_the_bits_of_each_head_alone) {
  // Columns of heads side by side on both ways, with gaps, and panels of something else between those of two heads.
  constexpr int kHeads = 3, kN = 70, kK = 22, kInHead = 30, kOutHead = 80, kBetween = 128;
  Stream one = stream(1), three = stream(3);
  const auto check = [&]<typename T>(T, const std::vector<T>& a, const std::vector<T>& weights, int m) {
    const size_t group = packed_size(kN, kK) + kBetween;
    std::vector<T> packed(kHeads * group), out(static_cast<size_t>(m) * kHeads * kOutHead), alone(out);
    for (int head = 0; head < kHeads; ++head)
      ASSERT_TRUE(pack(one, &weights[head * kN * kK], kN, kK, &packed[head * group]));
    BasicBatchedGemm<T> arguments{.a = a.data(),
                                  .a_stride = kHeads * kInHead,
                                  .a_group = kInHead,
                                  .b = packed.data(),
                                  .b_group = group,
                                  .out = out.data(),
                                  .out_stride = kHeads * kOutHead,
                                  .out_group = kOutHead,
                                  .groups = kHeads,
                                  .m = m,
                                  .n = kN,
                                  .k = kK};
    ASSERT_TRUE(batched_gemm(three, arguments));
    for (int head = 0; head < kHeads; ++head) {
      ASSERT_TRUE(gemm(one, BasicGemm<T>{.a = a.data() + head * kInHead,
                                         .a_stride = kHeads * kInHead,
                                         .b = &packed[head * group],
                                         .out = alone.data() + head * kOutHead,
                                         .out_stride = kHeads * kOutHead,
                                         .m = m,
                                         .n = kN,
                                         .k = kK}));
    }
    EXPECT_EQ(std::memcmp(out.data(), alone.data(), out.size() * sizeof(T)), 0) << m << " rows";
    arguments.b_group = 1;
    EXPECT_NE(batched_gemm(one, arguments).to_string().find("b_group"), std::string::npos);
  };
  for (const int m : {1, 5, 150}) {
    check(bf16{}, random_bf16(m * kHeads * kInHead, 55), random_bf16(kHeads * kN * kK, 56), m);
    check(float{}, random_floats(m * kHeads * kInHead, 57), random_floats(kHeads * kN * kK, 58), m);
  }
}

TEST_P(GroupedGemmTest, a_grouped_weight_gradient_has_the_bits_of_each_groups_own) {
  Stream one = stream(1), three = stream(3);
  const Grouped grouped(one);
  const int rows = grouped.rows, m = 40, n = 72, groups = Grouped::kGroups;
  const auto grad = random_bf16(rows * m, 52), x = random_bf16(rows * n, 53);
  const auto start = random_floats(groups * m * n, 54);
  const auto gradient = [&](Stream& cpu) {
    std::vector<bf16> packed_grad(packed_groups_size(m, rows, groups)), packed_x(packed_groups_size(n, rows, groups));
    EXPECT_TRUE(pack_groups(cpu, {.x = grad.data(),
                                  .offsets = grouped.offsets.data(),
                                  .packed = packed_grad.data(),
                                  .groups = groups,
                                  .rows = rows,
                                  .columns = m}));
    EXPECT_TRUE(pack_groups(cpu, {.x = x.data(),
                                  .offsets = grouped.offsets.data(),
                                  .packed = packed_x.data(),
                                  .groups = groups,
                                  .rows = rows,
                                  .columns = n}));
    auto out = start;
    EXPECT_TRUE(k_grouped_gemm(cpu, {.a = packed_grad.data(),
                                     .b = packed_x.data(),
                                     .offsets = grouped.offsets.data(),
                                     .out = out.data(),
                                     .groups = groups,
                                     .rows = rows,
                                     .m = m,
                                     .n = n}));
    return out;
  };
  const auto out = gradient(one);
  EXPECT_EQ(out, gradient(three));
  for (int g = 0; g < groups; ++g) {
    const int first = grouped.offsets[g], count = grouped.offsets[g + 1] - first, even = (count + 1) / 2 * 2;
    std::vector<float> alone(start.begin() + g * m * n, start.begin() + (g + 1) * m * n);
    if (count > 0) {
      std::vector<bf16> packed_grad(packed_size(m, even)), packed_x(packed_size(n, even));
      ASSERT_TRUE(pack_transposed(one, &grad[first * m], count, m, packed_grad.data()));
      ASSERT_TRUE(pack_transposed(one, &x[first * n], count, n, packed_x.data()));
      ASSERT_TRUE(gemm(one, {.a = packed_grad.data(),
                             .a_packed = true,
                             .b = packed_x.data(),
                             .out_float = alone.data(),
                             .out_stride = static_cast<size_t>(n),
                             .accumulate = true,
                             .m = m,
                             .n = n,
                             .k = even}));
    }
    EXPECT_EQ(0, std::memcmp(alone.data(), &out[g * m * n], alone.size() * sizeof(float))) << "group " << g;
  }
}

}  // namespace
}  // namespace tandem::kernels
