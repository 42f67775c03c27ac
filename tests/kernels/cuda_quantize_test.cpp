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
