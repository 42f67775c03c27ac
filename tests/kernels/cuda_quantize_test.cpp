#include "kernels/experts.h"
#include "kernels/gemm.h"
#include "kernels/quantize.h"
#include "tests/kernels/cuda_machines.h"

namespace tandem::kernels::cuda {
namespace {

Stream avx2() { return std::move(*Stream::cpu(2, Isa::kAvx2)); }

// Magnitudes of all sizes, zeros and denormals, and here and there what is not finite.
std::vector<bf16> values(int rows, int columns) {
  Random random(7);
  std::vector<bf16> x(static_cast<size_t>(rows) * columns);
  for (size_t i = 0; i < x.size(); ++i) {
    const uint64_t exponent = i / 32 % 7 == 0 ? 0 : (i / 32 * 37 + random.below(20)) % 255;
    x[i].bits = static_cast<uint16_t>((random.below(2) << 15) | (exponent << 7) | random.below(128));
    if (random.chance(0.001)) x[i].bits = static_cast<uint16_t>(0x7f80 | random.below(0x10000));
  }
  return x;
}

template <typename T>
std::vector<uint8_t> bits_of_all(const std::vector<T>& values) {
  std::vector<uint8_t> bits;
  for (const T value : values) bits.push_back(value.bits);
  return bits;
}

constexpr int kRows = 150, kColumns = 300;  // neither divides into blocks
constexpr size_t kElements = size_t{kRows} * kColumns;

TandemCudaQuantize quantize_arguments(Machine& machine, int block) {
  return {.x = machine.place(values(kRows, kColumns)),
          .stride = kColumns,
          .by_row = machine.room<uint8_t>(kElements),
          .row_scales = machine.room<uint8_t>(kRows * scale_blocks(kColumns, block)),
          .by_column = machine.room<uint8_t>(kElements),
          .column_scales = machine.room<uint8_t>(kColumns * scale_blocks(kRows, block)),
          .rows = kRows,
          .columns = kColumns,
          .block = block};
}

TandemCudaQuantizeWeight weight_arguments(Machine& machine) {
  return {.weight = machine.place(values(kRows, kColumns)),
          .out = machine.room<uint8_t>(kElements),
          .scales = machine.room<uint8_t>(scale_blocks(kRows, kScaleBlock) * scale_blocks(kColumns, kScaleBlock)),
          .rows = kRows,
          .columns = kColumns};
}

Bytes quantize_case(Machine& machine) {
  Bytes bytes;
  for (const int block : {kScaleBlock, kMicroscaleBlock}) {
    const TandemCudaQuantize q = quantize_arguments(machine, block);
    EXPECT_EQ(machine.run(q), 0);
    append(bytes, machine.fetch(q.by_row, kElements));
    append(bytes, machine.fetch(q.row_scales, kRows * scale_blocks(kColumns, block)));
    append(bytes, machine.fetch(q.by_column, kElements));
    append(bytes, machine.fetch(q.column_scales, kColumns * scale_blocks(kRows, block)));
    const TandemCudaExpand e{.codes = q.by_row,
                             .scales = q.row_scales,
                             .out = machine.room<uint16_t>(kElements),
                             .rows = kRows,
                             .columns = kColumns,
                             .block = block,
                             .block_rows = 1};
    EXPECT_EQ(machine.run(e), 0);
    append(bytes, machine.fetch(e.out, kElements));
  }
  const TandemCudaQuantizeWeight w = weight_arguments(machine);
  EXPECT_EQ(machine.run(w), 0);
  append(bytes, machine.fetch(w.out, kElements));
  return bytes;
}
TANDEM_CUDA_CASE_TESTS(quantize)

// What comes back of codes that lie on the machine is what the AVX2 kernel makes of the same on the host.
void expect_same_back(Stream& cpu, Machine& machine, const TandemCudaExpand& on_machine,
                      const std::vector<uint8_t>& codes, const std::vector<uint8_t>& scales) {
  TandemCudaExpand e = on_machine;
  e.out = machine.room<uint16_t>(codes.size());
  ASSERT_EQ(machine.run(e), 0);
  std::vector<bf16> expected(codes.size());
  ASSERT_TRUE(kernels::expand(cpu, {.codes = reinterpret_cast<const e4m3*>(codes.data()),
                                    .scales = reinterpret_cast<const e8m0*>(scales.data()),
                                    .out = expected.data(),
                                    .rows = e.rows,
                                    .columns = e.columns,
                                    .block = e.block,
                                    .block_rows = e.block_rows}));
  EXPECT_EQ(as_bf16(machine.fetch(e.out, codes.size())), expected);
}

TEST(CudaHost, rows_and_columns_in_e4m3_and_back_have_the_bits_of_the_avx2_kernel) {
  Stream cpu = avx2();
  HostMachine machine;
  const auto x = values(kRows, kColumns);
  for (const int block : {kScaleBlock, kMicroscaleBlock}) {
    std::vector<e4m3> by_row(kElements), by_column(kElements);
    std::vector<e8m0> row_scales(kRows * scale_blocks(kColumns, block)),
        column_scales(kColumns * scale_blocks(kRows, block));
    ASSERT_TRUE(kernels::quantize(cpu, {.x = x.data(),
                                        .stride = kColumns,
                                        .by_row = by_row.data(),
                                        .row_scales = row_scales.data(),
                                        .by_column = by_column.data(),
                                        .column_scales = column_scales.data(),
                                        .rows = kRows,
                                        .columns = kColumns,
                                        .block = block}));
    const TandemCudaQuantize q = quantize_arguments(machine, block);
    ASSERT_EQ(machine.run(q), 0);
    EXPECT_EQ(machine.fetch(q.by_row, kElements), bits_of_all(by_row));
    EXPECT_EQ(machine.fetch(q.row_scales, row_scales.size()), bits_of_all(row_scales));
    EXPECT_EQ(machine.fetch(q.by_column, kElements), bits_of_all(by_column));
    EXPECT_EQ(machine.fetch(q.column_scales, column_scales.size()), bits_of_all(column_scales));
    expect_same_back(cpu, machine,
                     {.codes = q.by_row,
                      .scales = q.row_scales,
                      .rows = kRows,
                      .columns = kColumns,
                      .block = block,
                      .block_rows = 1},
                     bits_of_all(by_row), bits_of_all(row_scales));
  }
}

TEST(CudaHost, a_weight_in_e4m3_and_back_has_the_bits_of_the_avx2_kernel) {
  Stream cpu = avx2();
  HostMachine machine;
  const auto x = values(kRows, kColumns);
  std::vector<e4m3> codes(kElements);
  std::vector<e8m0> scales(scale_blocks(kRows, kScaleBlock) * scale_blocks(kColumns, kScaleBlock));
  ASSERT_TRUE(kernels::quantize_weight(cpu, x.data(), kRows, kColumns, codes.data(), scales.data()));
  const TandemCudaQuantizeWeight w = weight_arguments(machine);
  ASSERT_EQ(machine.run(w), 0);
  EXPECT_EQ(machine.fetch(w.out, kElements), bits_of_all(codes));
  EXPECT_EQ(machine.fetch(w.scales, scales.size()), bits_of_all(scales));
  expect_same_back(cpu, machine,
                   {.codes = w.out,
                    .scales = w.scales,
                    .rows = kRows,
                    .columns = kColumns,
                    .block = kScaleBlock,
                    .block_rows = kScaleBlock},
                   bits_of_all(codes), bits_of_all(scales));
}

TEST(CudaHost, every_code_with_every_scale_expands_as_on_the_host) {
  Stream cpu = avx2();
  HostMachine machine;
  constexpr int kCodes = 256, kScales = 256;  // a row of all codes for each scale
  std::vector<uint8_t> codes(kCodes * kScales), scales(kScales * 2);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<uint8_t>(i / 2);
  expect_same_back(cpu, machine,
                   {.codes = machine.place(codes),
                    .scales = machine.place(scales),
                    .rows = kScales,
                    .columns = kCodes,
                    .block = kScaleBlock,
                    .block_rows = 1},
                   codes, scales);
}

Bytes round_to_codes_case(Machine& machine) {
  Bytes bytes;
  for (const int block : {kScaleBlock, kMicroscaleBlock}) {
    uint16_t* x = machine.place(values(kRows, kColumns));
    EXPECT_EQ(machine.run(TandemCudaRoundToCodes{.x = x, .out = x, .rows = kRows, .columns = kColumns, .block = block}),
              0);
    append(bytes, machine.fetch(x, kElements));
  }
  return bytes;
}
Bytes round_to_codes_on_cpu(Stream& cpu) {
  Bytes bytes;
  for (const int block : {kScaleBlock, kMicroscaleBlock}) {
    auto x = values(kRows, kColumns);
    EXPECT_TRUE(
        round_to_codes(cpu, {.x = x.data(), .out = x.data(), .rows = kRows, .columns = kColumns, .block = block}));
    append(bytes, x);
  }
  return bytes;
}
TANDEM_CUDA_AGAINST_AVX2_TESTS(round_to_codes)

// Products of codes on both sides, as fp8 and mxfp8 have them, dense and by group: the bits of the bf16 product of what
// the codes stand for.
constexpr int kM = 33, kN = 150, kK = 300, kGroups = 2;
struct Coding {
  int block, block_rows;
};
constexpr Coding kCodings[] = {{kScaleBlock, kScaleBlock}, {kMicroscaleBlock, 1}};
const std::vector<int32_t> kOffsets = {0, 20, kM};

// Codes of `rows` rows, `groups` times.
TandemCudaCodes coded(Machine& machine, const std::vector<bf16>& x, int rows, int columns, const Coding& coding,
                      int groups = 1) {
  const size_t scales = scale_blocks(rows, coding.block_rows) * scale_blocks(columns, coding.block);
  uint8_t* codes = machine.room<uint8_t>(x.size());
  uint8_t* all_scales = machine.room<uint8_t>(scales * groups);
  const uint16_t* start = machine.place(x);
  for (int group = 0; group < groups; ++group) {
    const size_t at = static_cast<size_t>(group) * rows * columns;
    const int code = coding.block_rows == 1
                         ? machine.run(TandemCudaQuantize{.x = start + at,
                                                          .stride = columns,
                                                          .by_row = codes + at,
                                                          .row_scales = all_scales + scales * group,
                                                          .rows = rows,
                                                          .columns = columns,
                                                          .block = coding.block})
                         : machine.run(TandemCudaQuantizeWeight{.weight = start + at,
                                                                .out = codes + at,
                                                                .scales = all_scales + scales * group,
                                                                .rows = rows,
                                                                .columns = columns});
    EXPECT_EQ(code, 0);
  }
  return {.codes = codes, .scales = all_scales, .block = coding.block, .block_rows = coding.block_rows};
}
Bytes coded_products_case(Machine& machine) {
  Bytes bytes;
  for (const Coding& coding : kCodings) {
    const auto a = random_bf16(kM * kK, 1), b = random_bf16(size_t{kGroups} * kN * kK, 2);
    const Coding of_rows{coding.block, 1};
    TandemCudaGemm g{};
    g.a_codes = coded(machine, a, kM, kK, of_rows);
    g.b_codes = coded(machine, {b.begin(), b.begin() + kN * kK}, kN, kK, coding);
    g.out = machine.room<uint16_t>(kM * kN);
    g.out_stride = g.n = kN;
    g.m = kM;
    g.k = kK;
    EXPECT_EQ(machine.run(g), 0);
    append(bytes, machine.fetch(g.out, kM * kN));
    const TandemCudaGroupedGemm grouped{.a = machine.place(a),
                                        .a_stride = kK,
                                        .offsets = machine.place(kOffsets),
                                        .b_codes = coded(machine, b, kN, kK, coding, kGroups),
                                        .out = machine.room<uint16_t>(kM * kN),
                                        .out_stride = kN,
                                        .groups = kGroups,
                                        .m = kM,
                                        .n = kN,
                                        .k = kK};
    EXPECT_EQ(machine.run(grouped), 0);
    append(bytes, machine.fetch(grouped.out, kM * kN));
  }
  return bytes;
}
Bytes coded_products_on_cpu(Stream& cpu) {
  Bytes bytes;
  const auto rounded = [&](std::vector<bf16> x, int rows, int columns, const Coding& coding) {
    std::vector<e4m3> codes(x.size());
    std::vector<e8m0> scales(scale_blocks(rows, coding.block_rows) * scale_blocks(columns, coding.block));
    EXPECT_TRUE(coding.block_rows == 1 ? quantize(cpu, {.x = x.data(),
                                                        .stride = static_cast<size_t>(columns),
                                                        .by_row = codes.data(),
                                                        .row_scales = scales.data(),
                                                        .rows = rows,
                                                        .columns = columns,
                                                        .block = coding.block})
                                       : quantize_weight(cpu, x.data(), rows, columns, codes.data(), scales.data()));
    EXPECT_TRUE(expand(cpu, {.codes = codes.data(),
                             .scales = scales.data(),
                             .out = x.data(),
                             .rows = rows,
                             .columns = columns,
                             .block = coding.block,
                             .block_rows = coding.block_rows}));
    return x;
  };
  for (const Coding& coding : kCodings) {
    const auto a = random_bf16(kM * kK, 1), b = random_bf16(size_t{kGroups} * kN * kK, 2);
    const auto rounded_a = rounded(a, kM, kK, {coding.block, 1});
    std::vector<bf16> weights(kGroups * packed_size(kN, kK)), out(kM * kN);
    for (int group = 0; group < kGroups; ++group) {
      const auto start = b.begin() + group * kN * kK;
      const auto weight = rounded({start, start + kN * kK}, kN, kK, coding);
      EXPECT_TRUE(pack(cpu, weight.data(), kN, kK, weights.data() + group * packed_size(kN, kK)));
    }
    EXPECT_TRUE(gemm(cpu, Gemm{.a = rounded_a.data(),
                               .a_stride = kK,
                               .b = weights.data(),
                               .out = out.data(),
                               .out_stride = kN,
                               .m = kM,
                               .n = kN,
                               .k = kK}));
    append(bytes, out);
    EXPECT_TRUE(grouped_gemm(cpu, GroupedGemm{.a = a.data(),
                                              .a_stride = kK,
                                              .offsets = kOffsets.data(),
                                              .b = weights.data(),
                                              .out = out.data(),
                                              .out_stride = kN,
                                              .groups = kGroups,
                                              .m = kM,
                                              .n = kN,
                                              .k = kK}));
    append(bytes, out);
  }
  return bytes;
}
TANDEM_CUDA_AGAINST_AVX2_TESTS(coded_products)

TEST(CudaHost, a_side_of_a_product_is_elements_or_codes_of_a_known_block) {
  HostMachine machine;
  TandemCudaGemm good{};
  good.a_codes = good.b_codes = coded(machine, random_bf16(32, 1), 1, 32, {kMicroscaleBlock, 1});
  good.out_float = machine.room<float>(1);
  good.out_stride = good.m = good.n = 1;
  good.k = 32;
  EXPECT_EQ(machine.run(good), 0);
  const auto code = [&](auto change) {
    TandemCudaGemm g = good;
    change(g);
    return machine.run(g);
  };
  EXPECT_EQ(code([&](auto& g) { g.a = machine.room<uint16_t>(32); }), kTandemCudaShape);
  EXPECT_EQ(code([](auto& g) { g.a_codes.scales = nullptr; }), kTandemCudaNull);
  EXPECT_EQ(code([](auto& g) { g.b_codes.block = 64; }), kTandemCudaShape);
  EXPECT_EQ(code([](auto& g) { g.b_codes.block_rows = 32; }), kTandemCudaShape);
  TandemCudaGemmFloat fp32{};
  fp32.a_codes = fp32.b_codes = good.a_codes;
  fp32.out_float = good.out_float;
  fp32.out_stride = fp32.m = fp32.n = 1;
  fp32.k = 32;
  EXPECT_EQ(machine.run(fp32), kTandemCudaShape);
}

TEST(CudaHost, quantizing_refuses_forms_blocks_and_strides_that_cannot_be) {
  HostMachine machine;
  const TandemCudaQuantize good = quantize_arguments(machine, kScaleBlock);
  const auto code_of_changed = [&](auto change) {
    TandemCudaQuantize q = good;
    change(q);
    return machine.run(q);
  };
  EXPECT_EQ(code_of_changed([](auto& q) { q.x = nullptr; }), kTandemCudaNull);
  EXPECT_EQ(code_of_changed([](auto& q) { q.row_scales = nullptr; }), kTandemCudaNull);
  EXPECT_EQ(code_of_changed([](auto& q) { q.by_row = q.row_scales = q.by_column = q.column_scales = nullptr; }),
            kTandemCudaNull);
  EXPECT_EQ(code_of_changed([](auto& q) { q.block = 64; }), kTandemCudaShape);
  EXPECT_EQ(code_of_changed([](auto& q) { q.stride = q.columns - 1; }), kTandemCudaStride);
  EXPECT_EQ(code_of_changed([](auto& q) { q.rows = -1; }), kTandemCudaSize);
}

}  // namespace
}  // namespace tandem::kernels::cuda
