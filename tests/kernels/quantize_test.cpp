#include "kernels/quantize.h"

#include <cmath>
#include <cstring>

#include "kernels/reference/quantize.h"
#include "tests/kernels/support.h"

namespace tandem::kernels {
namespace {

class QuantizeTest : public EachIsa {};
FOR_EACH_ISA(QuantizeTest);

// Blocks of every size, some of them zero or denormal; few values of any bits at all where `wild`.
std::vector<bf16> values(int rows, int columns, uint64_t seed, bool wild) {
  Random random(seed);
  std::vector<bf16> x(static_cast<size_t>(rows) * columns);
  uint64_t exponent = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (i % 32 == 0) exponent = random.chance(0.2) ? 0 : random.below(254);
    const uint64_t below = exponent - std::min(exponent, random.below(20));  // some become denormal as E4M3, or zero
    x[i].bits = static_cast<uint16_t>((random.below(2) << 15) | (below << 7) | random.below(128));
    if (random.chance(0.05)) x[i].bits &= 0x8000;
    if (wild && random.chance(0.001)) x[i].bits = static_cast<uint16_t>(0x7f80 | random.below(0x10000));
  }
  return x;
}

template <typename T>
std::vector<T> transposed(const std::vector<T>& x, size_t columns) {
  std::vector<T> out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i % columns * (x.size() / columns) + i / columns] = x[i];
  return out;
}

template <typename T>
void expect_same(const std::vector<T>& got, const std::vector<T>& expected, const char* what) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i].bits, expected[i].bits) << what << " " << i;
}

struct Forms {
  std::vector<e4m3> by_row, by_column;
  std::vector<e8m0> row_scales, column_scales;
  // Codes and scales that nothing writes by chance.
  Forms(int rows, int columns, int block)
      : by_row(static_cast<size_t>(rows) * columns, e4m3{0xee}),
        by_column(by_row),
        row_scales(rows * scale_blocks(columns, block), e8m0{0xee}),
        column_scales(columns * scale_blocks(rows, block), e8m0{0xee}) {}
};

TEST_P(QuantizeTest, rows_and_columns_have_the_bits_of_the_definition) {
  Stream cpu = stream();
  for (const auto& [rows, columns] :
       {std::pair{1, 1}, {1, 576}, {128, 128}, {130, 257}, {33, 1152}, {300, 40}, {256, 1300}}) {
    for (const int block : {kScaleBlock, kMicroscaleBlock}) {
      for (const bool wild : {false, true}) {
        SCOPED_TRACE(testing::Message() << rows << "x" << columns << ", blocks of " << block);
        const auto x = values(rows, columns, 1, wild);
        Forms got(rows, columns, block);
        ASSERT_TRUE(quantize(cpu, {.x = x.data(),
                                   .stride = static_cast<size_t>(columns),
                                   .by_row = got.by_row.data(),
                                   .row_scales = got.row_scales.data(),
                                   .by_column = got.by_column.data(),
                                   .column_scales = got.column_scales.data(),
                                   .rows = rows,
                                   .columns = columns,
                                   .block = block}));
        const auto by_row = reference::quantize(x, rows, columns, 1, block);
        const auto by_column = reference::quantize(x, rows, columns, block, 1);
        expect_same(got.row_scales, by_row.scales, "scale of a row");
        expect_same(got.by_row, by_row.codes, "by row");
        expect_same(got.column_scales, transposed(by_column.scales, columns), "scale of a column");
        expect_same(got.by_column, transposed(by_column.codes, columns), "by column");
      }
    }
  }
}

TEST_P(QuantizeTest, weights_have_the_bits_of_the_definition) {
  Stream cpu = stream();
  for (const auto& [rows, columns] : {std::pair{1, 1}, {128, 128}, {200, 300}, {576, 1536}, {5, 1200}}) {
    for (const bool wild : {false, true}) {
      const auto x = values(rows, columns, 2, wild);
      std::vector<e4m3> codes(x.size(), e4m3{0xee});
      std::vector<e8m0> scales(scale_blocks(rows, kScaleBlock) * scale_blocks(columns, kScaleBlock));
      ASSERT_TRUE(quantize_weight(cpu, x.data(), rows, columns, codes.data(), scales.data()));
      const auto expected = reference::quantize(x, rows, columns, kScaleBlock, kScaleBlock);
      expect_same(scales, expected.scales, "scale");
      expect_same(codes, expected.codes, "code");
    }
  }
}

TEST_P(QuantizeTest, a_form_alone_and_a_row_alone_have_the_same_bits_with_any_threads) {
  Stream one = stream(1), three = stream(3);
  const int rows = 140, columns = 320, stride = 333;
  const auto x = values(rows, stride, 3, true);
  Forms both(rows, columns, kScaleBlock), apart(rows, columns, kScaleBlock), single(rows, columns, kScaleBlock);
  Quantize arguments{.x = x.data(),
                     .stride = stride,
                     .by_row = both.by_row.data(),
                     .row_scales = both.row_scales.data(),
                     .by_column = both.by_column.data(),
                     .column_scales = both.column_scales.data(),
                     .rows = rows,
                     .columns = columns};
  ASSERT_TRUE(quantize(three, arguments));
  arguments.by_row = apart.by_row.data();
  arguments.row_scales = apart.row_scales.data();
  arguments.by_column = nullptr;
  arguments.column_scales = nullptr;
  ASSERT_TRUE(quantize(one, arguments));
  arguments.by_row = nullptr;
  arguments.row_scales = nullptr;
  arguments.by_column = apart.by_column.data();
  arguments.column_scales = apart.column_scales.data();
  ASSERT_TRUE(quantize(one, arguments));
  for (int row = 0; row < rows; ++row) {
    ASSERT_TRUE(quantize(one, {.x = &x[row * stride],
                               .stride = stride,
                               .by_row = &single.by_row[row * columns],
                               .row_scales = &single.row_scales[row * scale_blocks(columns, kScaleBlock)],
                               .rows = 1,
                               .columns = columns}));
  }
  expect_same(apart.by_row, both.by_row, "by row");
  expect_same(apart.row_scales, both.row_scales, "scale of a row");
  expect_same(apart.by_column, both.by_column, "by column");
  expect_same(apart.column_scales, both.column_scales, "scale of a column");
  expect_same(single.by_row, both.by_row, "row alone");
  expect_same(single.row_scales, both.row_scales, "scale of a row alone");
}

// Each magnitude of bf16 as the largest of a block whose other elements are of every size.
TEST_P(QuantizeTest, every_largest_magnitude_has_the_scale_and_the_codes_of_the_definition) {
  Stream cpu = stream();
  const int rows = 0x8000, columns = kMicroscaleBlock;
  std::vector<bf16> x;
  for (int row = 0; row < rows; ++row) {
    for (int i = 0; i < columns; ++i) {
      const int smaller = i % 2 == 0 ? std::max(0, row - i / 2 * 131) : row * i / columns;
      x.push_back({static_cast<uint16_t>(smaller | (i % 3 == 0 ? 0x8000 : 0))});
    }
  }
  Forms got(rows, columns, columns);
  ASSERT_TRUE(quantize(cpu, {.x = x.data(),
                             .stride = columns,
                             .by_row = got.by_row.data(),
                             .row_scales = got.row_scales.data(),
                             .rows = rows,
                             .columns = columns,
                             .block = columns}));
  const auto expected = reference::quantize(x, rows, columns, 1, columns);
  expect_same(got.row_scales, expected.scales, "scale of magnitude");
  expect_same(got.by_row, expected.codes, "code");
}

TEST_P(QuantizeTest, zeros_denormals_infinities_and_nan_become_what_the_header_says) {
  Stream cpu = stream();
  const auto quantized = [&](std::vector<bf16> x) {
    x.resize(kMicroscaleBlock);
    Forms got(1, kMicroscaleBlock, kMicroscaleBlock);
    EXPECT_TRUE(quantize(cpu, {.x = x.data(),
                               .stride = x.size(),
                               .by_row = got.by_row.data(),
                               .row_scales = got.row_scales.data(),
                               .rows = 1,
                               .columns = kMicroscaleBlock,
                               .block = kMicroscaleBlock}));
    return got;
  };
  const Forms zeros = quantized({{0x8000}});
  EXPECT_EQ(to_float(zeros.row_scales[0]), 0x1p-126f);
  EXPECT_EQ(zeros.by_row[0].bits, 0x80);
  EXPECT_EQ(zeros.by_row[1].bits, 0);

  const Forms denormals = quantized({{0x0001}, {0x8003}});  // 2^-133, -3 2^-133
  EXPECT_EQ(to_float(denormals.row_scales[0]), 0x1p-126f);
  EXPECT_EQ(to_float(denormals.by_row[0]), 0x1p-7f);
  EXPECT_EQ(to_float(denormals.by_row[1]), -0x3p-7f);

  for (const uint16_t bad : {0x7f80, 0xff80, 0x7fc0, 0xff81}) {
    const Forms got = quantized({to_bf16(1), {bad}});
    EXPECT_EQ(got.row_scales[0], kE8m0Nan) << bad;
    for (const e4m3 code : got.by_row) EXPECT_EQ(code.bits, 0x7f) << bad;
  }

  const Forms largest = quantized({{0x7f7f}, {0x0080}});
  EXPECT_EQ(to_float(largest.row_scales[0]), 0x1p120f);
  EXPECT_EQ(to_float(largest.by_row[0]), 256);
  EXPECT_EQ(largest.by_row[1].bits, 0);
  EXPECT_EQ(to_float(quantized({to_bf16(448)}).row_scales[0]), 1) << "the largest code of all is used";
  EXPECT_EQ(to_float(quantized({to_bf16(450)}).row_scales[0]), 2);
}

TEST_P(QuantizeTest, every_code_with_every_scale_comes_back_as_the_definition_says) {
  Stream cpu = stream();
  const int rows = 256, columns = 256 + 7;
  std::vector<e4m3> codes(static_cast<size_t>(rows) * columns);
  for (size_t i = 0; i < codes.size(); ++i) codes[i].bits = static_cast<uint8_t>(i % columns);
  for (const int block : {kScaleBlock, kMicroscaleBlock}) {
    for (const int block_rows : {1, kScaleBlock}) {
      const size_t across = scale_blocks(columns, block);
      std::vector<e8m0> scales(scale_blocks(rows, block_rows) * across);
      for (size_t i = 0; i < scales.size(); ++i)
        scales[i].bits = static_cast<uint8_t>(block_rows == 1 ? i / across : i * 23);
      std::vector<bf16> got(codes.size(), bf16{0xeeee}), expected;
      ASSERT_TRUE(expand(cpu, {.codes = codes.data(),
                               .scales = scales.data(),
                               .out = got.data(),
                               .rows = rows,
                               .columns = columns,
                               .block = block,
                               .block_rows = block_rows}));
      for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < columns; ++i)
          expected.push_back(
              reference::expand(codes[row * columns + i], scales[row / block_rows * across + i / block]));
      }
      expect_same(got, expected, "value");
    }
  }
}

TEST_P(QuantizeTest, what_came_back_once_comes_back_the_same) {
  Stream cpu = stream();
  const int rows = 200, columns = 300;
  std::vector<e4m3> codes(rows * columns);
  std::vector<e8m0> scales(rows * scale_blocks(columns, kMicroscaleBlock));
  const auto round_trip = [&](const std::vector<bf16>& x, int block, int block_rows) {
    std::vector<bf16> out(x.size());
    if (block_rows == 1) {
      EXPECT_TRUE(quantize(cpu, {.x = x.data(),
                                 .stride = columns,
                                 .by_row = codes.data(),
                                 .row_scales = scales.data(),
                                 .rows = rows,
                                 .columns = columns,
                                 .block = block}));
    } else {
      EXPECT_TRUE(quantize_weight(cpu, x.data(), rows, columns, codes.data(), scales.data()));
    }
    EXPECT_TRUE(expand(cpu, {.codes = codes.data(),
                             .scales = scales.data(),
                             .out = out.data(),
                             .rows = rows,
                             .columns = columns,
                             .block = block,
                             .block_rows = block_rows}));
    return out;
  };
  for (const auto& [block, block_rows] :
       {std::pair{kScaleBlock, 1}, {kMicroscaleBlock, 1}, {kScaleBlock, kScaleBlock}}) {
    const auto once = round_trip(values(rows, columns, 4, true), block, block_rows);
    expect_same(round_trip(once, block, block_rows), once, "value");
  }
}

TEST_P(QuantizeTest, in_one_pass_rows_become_what_quantising_and_expanding_makes_of_them) {
  Stream cpu = stream();
  for (const auto& [rows, columns] : {std::pair{1, 1}, {1, 576}, {40, 257}, {33, 1152}}) {
    for (const int block : {kScaleBlock, kMicroscaleBlock}) {
      for (const bool wild : {false, true}) {
        SCOPED_TRACE(testing::Message() << rows << "x" << columns << ", blocks of " << block);
        auto x = values(rows, columns, 5, wild);
        Forms forms(rows, columns, block);
        ASSERT_TRUE(quantize(cpu, {.x = x.data(),
                                   .stride = static_cast<size_t>(columns),
                                   .by_row = forms.by_row.data(),
                                   .row_scales = forms.row_scales.data(),
                                   .rows = rows,
                                   .columns = columns,
                                   .block = block}));
        std::vector<bf16> expected(x.size()), got(x.size());
        ASSERT_TRUE(expand(cpu, {.codes = forms.by_row.data(),
                                 .scales = forms.row_scales.data(),
                                 .out = expected.data(),
                                 .rows = rows,
                                 .columns = columns,
                                 .block = block}));
        RoundToCodes arguments{.x = x.data(), .out = got.data(), .rows = rows, .columns = columns, .block = block};
        ASSERT_TRUE(round_to_codes(cpu, arguments));
        expect_same(got, expected, "element");
        arguments.out = x.data();
        ASSERT_TRUE(round_to_codes(cpu, arguments));
        expect_same(x, expected, "in place, element");
      }
    }
  }
}

TEST(QuantizeArguments, are_checked_and_the_wrong_one_is_named) {
  Stream cpu = std::move(*Stream::cpu(1));
  const bf16 x[4] = {};
  e4m3 codes[4];
  e8m0 scales[4];
  const Quantize right{.x = x, .stride = 2, .by_row = codes, .row_scales = scales, .rows = 2, .columns = 2};
  ASSERT_TRUE(quantize(cpu, right));
  const auto message = [&](auto change) {
    Quantize wrong = right;
    change(wrong);
    return quantize(cpu, wrong).message();
  };
  EXPECT_EQ(message([](Quantize& q) { q.x = nullptr; }), "quantize: x is null");
  EXPECT_EQ(message([](Quantize& q) { q.rows = -1; }), "quantize: rows is -1, expected 0 to 2^31");
  EXPECT_EQ(message([](Quantize& q) { q.block = 64; }), "quantize: block must be 128 or 32");
  EXPECT_EQ(message([](Quantize& q) { q.stride = 1; }), "quantize: stride is below columns");
  EXPECT_EQ(message([](Quantize& q) { q.row_scales = nullptr; }), "quantize: by_row and row_scales go together");
  EXPECT_EQ(message([&](Quantize& q) { q.column_scales = scales; }),
            "quantize: by_column and column_scales go together");
  EXPECT_EQ(message([](Quantize& q) { q.by_row = nullptr, q.row_scales = nullptr; }),
            "quantize: neither by_row nor by_column is given");
  EXPECT_EQ(quantize_weight(cpu, x, 2, 2, codes, nullptr).message(), "quantize_weight: scales is null");
  bf16 out[4];
  EXPECT_EQ(expand(cpu, {.codes = codes, .scales = scales, .rows = 2, .columns = 2}).message(), "expand: out is null");
  EXPECT_EQ(
      expand(cpu, {.codes = codes, .scales = scales, .out = out, .rows = 2, .columns = 2, .block_rows = 2}).message(),
      "expand: block_rows must be 1 or 128");
}

}  // namespace
}  // namespace tandem::kernels
