// Products over codes have the bits of products over the bf16 that the codes stand for.
#include <cstring>

#include "kernels/experts.h"
#include "tests/kernels/support.h"

namespace tandem::kernels {
namespace {

class PackedCodesTest : public EachIsa {};
FOR_EACH_ISA(PackedCodesTest);

// Every code but NaN, under scales from the least to the largest that bf16's normal numbers allow.
struct Coded {
  int n, k, block, block_rows;
  std::vector<e4m3> codes;
  std::vector<e8m0> scales;

  Coded(int n, int k, int block, int block_rows, int least = 127 - 117, int largest = 127 + 119)
      : n(n), k(k), block(block), block_rows(block_rows) {
    Random random(static_cast<uint64_t>(n) * 1000 + k);
    for (int i = 0; i < n * k; ++i) {
      const auto bits = static_cast<uint8_t>(random.below(256));
      codes.push_back({(bits & 0x7f) == 0x7f ? uint8_t{0x80} : bits});
    }
    const size_t count = scale_blocks(n, block_rows) * scale_blocks(k, block);
    for (size_t i = 0; i < count; ++i)
      scales.push_back({static_cast<uint8_t>(least + random.below(largest - least + 1))});
  }
  Result<bool> pack(Stream& cpu, std::vector<std::byte>& packed) const {
    packed.assign(packed_codes_size(n, k), std::byte{0xff});
    return pack_codes(cpu, {.codes = codes.data(),
                            .scales = scales.data(),
                            .packed = packed.data(),
                            .n = n,
                            .k = k,
                            .block = block,
                            .block_rows = block_rows});
  }
  std::vector<bf16> panels(Stream& cpu) const {
    std::vector<bf16> expanded(codes.size()), packed(packed_size(n, k));
    EXPECT_TRUE(expand(cpu, {.codes = codes.data(),
                             .scales = scales.data(),
                             .out = expanded.data(),
                             .rows = n,
                             .columns = k,
                             .block = block,
                             .block_rows = block_rows}));
    EXPECT_TRUE(kernels::pack(cpu, expanded.data(), n, k, packed.data()));
    return packed;
  }
};

std::vector<float> product(Stream& cpu, const std::vector<bf16>& a, RightSide<bf16> b, int m, const Coded& weight) {
  std::vector<float> out(static_cast<size_t>(m) * weight.n);
  EXPECT_TRUE(gemm(cpu, {.a = a.data(),
                         .a_stride = static_cast<size_t>(weight.k),
                         .b = b,
                         .out_float = out.data(),
                         .out_stride = static_cast<size_t>(weight.n),
                         .m = m,
                         .n = weight.n,
                         .k = weight.k}));
  return out;
}

TEST_P(PackedCodesTest, products_have_the_bits_of_those_with_panels_of_bf16) {
  Stream cpu = stream();
  for (const auto& [n, k] : {std::pair{64, 32}, {130, 70}, {64, 256}, {200, 600}, {1, 2}}) {
    for (const auto& [block, block_rows] : {std::pair{kScaleBlock, kScaleBlock}, {kMicroscaleBlock, 1}}) {
      const Coded weight(n, k, block, block_rows);
      const auto panels = weight.panels(cpu);
      std::vector<std::byte> packed;
      ASSERT_TRUE(weight.pack(cpu, packed).value());
      for (const int m : {1, 5, 100, 300}) {
        const auto a = random_bf16(static_cast<size_t>(m) * k, 3);
        const auto expected = product(cpu, a, panels.data(), m, weight);
        const auto got = product(cpu, a, RightSide<bf16>(packed.data()), m, weight);
        ASSERT_EQ(0, std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)))
            << m << "x" << n << "x" << k << ", blocks of " << block;
      }
    }
  }
}

TEST_P(PackedCodesTest, groups_have_the_bits_of_those_with_panels_of_bf16) {
  Stream cpu = stream(3);
  constexpr int kGroups = 4, kN = 130, kK = 70;
  const std::vector<int32_t> offsets = {0, 1, 1, 120, 123};
  const auto a = random_bf16(size_t{123} * kK, 4);
  std::vector<bf16> panels;
  std::vector<std::byte> packed;
  for (int g = 0; g < kGroups; ++g) {
    const Coded weight(kN, kK, kMicroscaleBlock, 1, 120 + g, 127);
    const auto own = weight.panels(cpu);
    panels.insert(panels.end(), own.begin(), own.end());
    std::vector<std::byte> bytes;
    ASSERT_TRUE(weight.pack(cpu, bytes).value());
    packed.insert(packed.end(), bytes.begin(), bytes.end());
  }
  const auto multiply = [&](RightSide<bf16> b) {
    std::vector<bf16> out(size_t{123} * kN);
    EXPECT_TRUE(grouped_gemm(cpu, {.a = a.data(),
                                   .a_stride = kK,
                                   .offsets = offsets.data(),
                                   .b = b,
                                   .out = out.data(),
                                   .out_stride = kN,
                                   .groups = kGroups,
                                   .m = 123,
                                   .n = kN,
                                   .k = kK}));
    return out;
  };
  const auto expected = multiply(panels.data()), got = multiply(RightSide<bf16>(packed.data()));
  EXPECT_TRUE(same_bits(got.data(), expected.data(), got.size()));
}

TEST_P(PackedCodesTest, what_bf16_does_not_hold_as_a_normal_number_is_left_to_panels) {
  Stream cpu = stream();
  std::vector<std::byte> packed;
  Coded weight(70, 64, kMicroscaleBlock, 1);
  ASSERT_TRUE(weight.pack(cpu, packed).value());
  const e4m3 code = weight.codes[100];
  weight.codes[100] = {0x7f};
  EXPECT_FALSE(weight.pack(cpu, packed).value()) << "NaN";
  weight.codes[100] = code;
  for (const int scale : {0, 127 - 118, 127 + 120, 0xff}) {
    Coded other = weight;
    other.scales[5] = {static_cast<uint8_t>(scale)};
    EXPECT_FALSE(other.pack(cpu, packed).value()) << scale;
    // Zeros are zeros under any scale: as quantising gives them, under the least.
    std::fill_n(other.codes.begin() + 5 * kMicroscaleBlock, kMicroscaleBlock, e4m3{0x80});
    EXPECT_TRUE(other.pack(cpu, packed).value()) << scale;
  }
}

TEST(PackedCodes, wrong_arguments_are_named) {
  Stream cpu = std::move(*Stream::cpu(1));
  const Coded weight(2, 2, kScaleBlock, 1);
  std::vector<std::byte> packed(packed_codes_size(2, 2));
  PackCodes arguments{
      .codes = weight.codes.data(), .scales = weight.scales.data(), .packed = packed.data(), .n = 2, .k = 3};
  EXPECT_NE(pack_codes(cpu, arguments).error().message().find("k must be even"), std::string::npos);
  arguments.k = 2;
  arguments.block = 64;
  EXPECT_NE(pack_codes(cpu, arguments).error().message().find("block must be"), std::string::npos);
  arguments.block = kScaleBlock;
  arguments.codes = nullptr;
  EXPECT_NE(pack_codes(cpu, arguments).error().message().find("codes is null"), std::string::npos);
  float x[4] = {};
  BasicGemm<float> product{
      .a = x, .a_stride = 2, .b = RightSide<float>(packed.data()), .out = x, .out_stride = 2, .m = 2, .n = 2, .k = 2};
  EXPECT_NE(gemm(cpu, product).message().find("codes go with bf16"), std::string::npos);
}

}  // namespace
}  // namespace tandem::kernels
