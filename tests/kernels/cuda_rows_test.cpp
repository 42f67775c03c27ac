#include <cmath>

#include "kernels/transformer_ops.h"
#include "tests/kernels/cuda_machines.h"

namespace tandem::kernels::cuda {
namespace {

Stream avx2() { return std::move(*Stream::cpu(2, Isa::kAvx2)); }

constexpr int kRows = 130, kWidth = 100;  // three pieces of rows, and a width that 16 lanes do not divide
constexpr size_t kElements = size_t{kRows} * kWidth;

TandemCudaRmsNorm norm(Machine& machine, int rows) {
  return {.x = machine.place(random_bf16(kElements, 1)),
          .weight = machine.place(random_bf16(kWidth, 2)),
          .out = machine.room<uint16_t>(kElements),
          .epsilon = 1e-5f,
          .rows = rows,
          .width = kWidth};
}
TandemCudaRmsNormBackward norm_backward(Machine& machine, int accumulate) {
  return {.x = machine.place(random_bf16(kElements, 1)),
          .weight = machine.place(random_bf16(kWidth, 2)),
          .grad_out = machine.place(random_bf16(kElements, 3)),
          .grad_x = machine.place(random_bf16(kElements, 4)),
          .grad_weight = machine.place(random_floats(kWidth, 5)),
          .accumulate = accumulate,
          .epsilon = 1e-5f,
          .rows = kRows,
          .width = kWidth,
          .workspace = machine.room<char>(kElements * 4),
          .workspace_bytes = kElements * 4};
}

Bytes rms_norm_case(Machine& machine) {
  Bytes bytes;
  const TandemCudaRmsNorm n = norm(machine, kRows);
  EXPECT_EQ(machine.run(n), 0);
  append(bytes, machine.fetch(n.out, kElements));
  for (const int accumulate : {0, 1}) {
    const TandemCudaRmsNormBackward b = norm_backward(machine, accumulate);
    EXPECT_EQ(machine.run(b), 0);
    append(bytes, machine.fetch(b.grad_x, kElements));
    append(bytes, machine.fetch(b.grad_weight, kWidth));
  }
  return bytes;
}
TANDEM_CUDA_CASE_TESTS(rms_norm)

TEST(CudaHost, rms_norm_and_its_gradient_give_the_bits_of_the_avx2_kernel) {
  Stream cpu = avx2();
  HostMachine machine;
  const auto x = random_bf16(kElements, 1), weight = random_bf16(kWidth, 2), grad = random_bf16(kElements, 3);
  std::vector<bf16> out(kElements);
  ASSERT_TRUE(kernels::rms_norm(cpu, x.data(), weight.data(), 1e-5f, kRows, kWidth, out.data()));
  const TandemCudaRmsNorm n = norm(machine, kRows);
  ASSERT_EQ(machine.run(n), 0);
  EXPECT_EQ(as_bf16(machine.fetch(n.out, kElements)), out);
  for (const bool accumulate : {false, true}) {
    auto grad_x = random_bf16(kElements, 4);
    auto grad_weight = random_floats(kWidth, 5);
    ASSERT_TRUE(kernels::rms_norm_backward(cpu, {.x = x.data(),
                                                 .weight = weight.data(),
                                                 .grad_out = grad.data(),
                                                 .grad_x = grad_x.data(),
                                                 .grad_weight = grad_weight.data(),
                                                 .accumulate = accumulate,
                                                 .epsilon = 1e-5f,
                                                 .rows = kRows,
                                                 .width = kWidth}));
    const TandemCudaRmsNormBackward b = norm_backward(machine, accumulate);
    ASSERT_EQ(machine.run(b), 0);
    EXPECT_EQ(as_bf16(machine.fetch(b.grad_x, kElements)), grad_x);
    EXPECT_EQ(machine.fetch(b.grad_weight, kWidth), grad_weight);
  }
}

TEST(CudaHost, a_row_of_rms_norm_has_the_same_bits_alone_and_among_others) {
  HostMachine machine;
  const TandemCudaRmsNorm all = norm(machine, kRows);
  ASSERT_EQ(machine.run(all), 0);
  const auto expected = machine.fetch(all.out, kElements);
  for (const int row : {0, 7, 8, 129}) {
    TandemCudaRmsNorm one = norm(machine, 1);
    one.x += row * kWidth;
    ASSERT_EQ(machine.run(one), 0);
    EXPECT_EQ(machine.fetch(one.out, kWidth),
              std::vector<uint16_t>(expected.begin() + row * kWidth, expected.begin() + (row + 1) * kWidth));
  }
}

TEST(CudaHost, the_gradient_of_rms_norm_refuses_a_workspace_that_is_too_small) {
  HostMachine machine;
  TandemCudaRmsNormBackward b = norm_backward(machine, 0);
  // Two numbers for each row, and the gradient of the weight for each of three pieces.
  b.workspace_bytes = kRows * 2 * sizeof(float) + 3 * kWidth * sizeof(float);
  EXPECT_EQ(machine.run(b), kTandemCudaOk);
  --b.workspace_bytes;
  EXPECT_EQ(machine.run(b), kTandemCudaWorkspace);
}

const std::vector<int32_t> kIds = {3, 0, 3, 9, 1, 3};  // one id three times

Bytes embed_case(Machine& machine) {
  const int rows = static_cast<int>(kIds.size());
  const TandemCudaEmbed e{.table = machine.place(random_bf16(10 * kWidth, 1)),
                          .ids = machine.place(kIds),
                          .out = machine.room<uint16_t>(rows * kWidth),
                          .rows = rows,
                          .vocabulary = 10,
                          .width = kWidth};
  EXPECT_EQ(machine.run(e), 0);
  const TandemCudaEmbedBackward b{.grad_out = machine.place(random_bf16(rows * kWidth, 2)),
                                  .ids = e.ids,
                                  .grad_table = machine.place(random_floats(10 * kWidth, 3)),
                                  .rows = rows,
                                  .vocabulary = 10,
                                  .width = kWidth};
  EXPECT_EQ(machine.run(b), 0);
  Bytes bytes;
  append(bytes, machine.fetch(e.out, rows * kWidth));
  append(bytes, machine.fetch(b.grad_table, 10 * kWidth));
  return bytes;
}
TANDEM_CUDA_CASE_TESTS(embed)

TEST(CudaHost, embedding_and_its_gradient_give_the_bits_of_the_avx2_kernel) {
  Stream cpu = avx2();
  const size_t rows = kIds.size();
  const auto table = random_bf16(10 * kWidth, 1), grad_out = random_bf16(rows * kWidth, 2);
  auto grad_table = random_floats(10 * kWidth, 3);
  std::vector<bf16> out(rows * kWidth);
  ASSERT_TRUE(kernels::embed(cpu, table.data(), 10, kWidth, kIds, out.data()));
  ASSERT_TRUE(kernels::embed_backward(cpu, grad_out.data(), kWidth, kIds, grad_table.data()));
  Bytes expected;
  append(expected, out);
  append(expected, grad_table);
  HostMachine machine;
  EXPECT_TRUE(embed_case(machine) == expected);
}

TEST(CudaHost, an_id_outside_the_vocabulary_embeds_as_nan_and_adds_no_gradient) {
  HostMachine machine;
  const auto ids = machine.place(std::vector<int32_t>{-1, 2, 1});
  const TandemCudaEmbed e{.table = machine.place(random_bf16(2 * 4, 1)),
                          .ids = ids,
                          .out = machine.room<uint16_t>(3 * 4),
                          .rows = 3,
                          .vocabulary = 2,
                          .width = 4};
  ASSERT_EQ(machine.run(e), 0);
  const auto out = as_bf16(machine.fetch(e.out, 12));
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(std::isnan(to_float(out[i])));
  EXPECT_EQ(out[8], random_bf16(2 * 4, 1)[4]);
  const TandemCudaEmbedBackward b{.grad_out = machine.place(std::vector<bf16>(12, kernels::to_bf16(1))),
                                  .ids = ids,
                                  .grad_table = machine.place(std::vector<float>(8, 0)),
                                  .rows = 3,
                                  .vocabulary = 2,
                                  .width = 4};
  ASSERT_EQ(machine.run(b), 0);
  EXPECT_EQ(machine.fetch(b.grad_table, 8), (std::vector<float>{0, 0, 0, 0, 1, 1, 1, 1}));
}

constexpr int kHeads = 3, kHeadSize = 64, kTurned = 5;

Bytes rope_case(Machine& machine) {
  Bytes bytes;
  for (const int inverse : {0, 1}) {
    const TandemCudaRope r{.x = machine.place(random_bf16(kTurned * kHeads * kHeadSize, 6)),
                           .stride = kHeads * kHeadSize,
                           .positions = machine.place(std::vector<int32_t>{0, 1, 50, 99, 7}),
                           .table = machine.place(rope_table(100, kHeadSize, 10000)),
                           .rows = kTurned,
                           .heads = kHeads,
                           .head_size = kHeadSize,
                           .table_positions = 100,
                           .inverse = inverse};
    EXPECT_EQ(machine.run(r), 0);
    append(bytes, machine.fetch(r.x, kTurned * kHeads * kHeadSize));
  }
  return bytes;
}
TANDEM_CUDA_CASE_TESTS(rope)

TEST(CudaHost, rope_both_ways_gives_the_bits_of_the_avx2_kernel) {
  Stream cpu = avx2();
  const auto table = rope_table(100, kHeadSize, 10000);
  Bytes expected;
  for (const bool inverse : {false, true}) {
    auto x = random_bf16(kTurned * kHeads * kHeadSize, 6);
    const std::vector<int32_t> positions = {0, 1, 50, 99, 7};
    ASSERT_TRUE(kernels::rope(cpu, {.x = x.data(),
                                    .stride = kHeads * kHeadSize,
                                    .positions = positions,
                                    .table = table.data(),
                                    .table_positions = 100,
                                    .rows = kTurned,
                                    .heads = kHeads,
                                    .head_size = kHeadSize,
                                    .rope_dim = kHeadSize,
                                    .inverse = inverse}));
    append(expected, x);
  }
  HostMachine machine;
  EXPECT_TRUE(rope_case(machine) == expected);
}

TEST(CudaHost, a_position_outside_the_table_turns_its_row_alone_to_nan) {
  HostMachine machine;
  TandemCudaRope r{.x = machine.place(random_bf16(3 * 4, 6)),
                   .stride = 4,
                   .positions = machine.place(std::vector<int32_t>{10, 0, -1}),
                   .table = machine.place(rope_table(10, 4, 10000)),
                   .rows = 3,
                   .heads = 1,
                   .head_size = 4,
                   .table_positions = 10,
                   .inverse = 0};
  ASSERT_EQ(machine.run(r), 0);
  const auto x = as_bf16(machine.fetch(r.x, 12)), before = random_bf16(3 * 4, 6);
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(std::isnan(to_float(x[i])));
    EXPECT_EQ(x[4 + i], before[4 + i]);
    EXPECT_TRUE(std::isnan(to_float(x[8 + i])));
  }
  r.stride = 3;
  EXPECT_EQ(machine.run(r), kTandemCudaStride);
  r.head_size = 3;
  EXPECT_EQ(machine.run(r), kTandemCudaShape);
}

// Gates from far below the exponential's range to far above it.
std::vector<bf16> gates(int rows) {
  auto values = random_bf16(static_cast<size_t>(rows) * 2 * kWidth, 7, 40);
  values[0] = kernels::to_bf16(-200);
  values[1] = kernels::to_bf16(200);
  values[2] = kernels::to_bf16(-0.0f);
  return values;
}

Bytes swiglu_case(Machine& machine) {
  const int rows = 9;
  const size_t elements = size_t{9} * kWidth;
  const TandemCudaSwiglu s{
      .gate_up = machine.place(gates(rows)), .out = machine.room<uint16_t>(elements), .rows = rows, .width = kWidth};
  EXPECT_EQ(machine.run(s), 0);
  const TandemCudaSwigluBackward b{.gate_up = s.gate_up,
                                   .grad_out = machine.place(random_bf16(elements, 8)),
                                   .grad_gate_up = machine.room<uint16_t>(elements * 2),
                                   .rows = rows,
                                   .width = kWidth};
  EXPECT_EQ(machine.run(b), 0);
  const TandemCudaAdd a{
      .x = machine.place(random_bf16(elements, 9)), .y = s.out, .count = static_cast<int64_t>(elements)};
  EXPECT_EQ(machine.run(a), 0);
  Bytes bytes;
  append(bytes, machine.fetch(s.out, elements));
  append(bytes, machine.fetch(b.grad_gate_up, elements * 2));
  append(bytes, machine.fetch(a.x, elements));
  return bytes;
}
TANDEM_CUDA_CASE_TESTS(swiglu)

TEST(CudaHost, swiglu_its_gradient_and_addition_give_the_bits_of_the_avx2_kernel) {
  Stream cpu = avx2();
  const int rows = 9;
  const size_t elements = size_t{9} * kWidth;
  const auto gate_up = gates(rows), grad = random_bf16(elements, 8);
  std::vector<bf16> out(elements), gradient(elements * 2);
  auto x = random_bf16(elements, 9);
  ASSERT_TRUE(kernels::swiglu(cpu, gate_up.data(), rows, kWidth, out.data()));
  ASSERT_TRUE(kernels::swiglu_backward(cpu, gate_up.data(), grad.data(), rows, kWidth, gradient.data()));
  ASSERT_TRUE(kernels::add(cpu, out.data(), elements, x.data()));
  Bytes expected;
  append(expected, out);
  append(expected, gradient);
  append(expected, x);
  HostMachine machine;
  EXPECT_TRUE(swiglu_case(machine) == expected);
}

TEST(CudaHost, operations_on_rows_refuse_null_pointers_and_negative_sizes) {
  HostMachine machine;
  TandemCudaRmsNorm n = norm(machine, -1);
  EXPECT_EQ(machine.run(n), kTandemCudaSize);
  n.x = nullptr;
  EXPECT_EQ(machine.run(n), kTandemCudaNull);
  EXPECT_EQ(machine.run(TandemCudaEmbed{}), kTandemCudaNull);
  EXPECT_EQ(machine.run(TandemCudaEmbedBackward{}), kTandemCudaNull);
  EXPECT_EQ(machine.run(TandemCudaRmsNormBackward{}), kTandemCudaNull);
  EXPECT_EQ(machine.run(TandemCudaRope{}), kTandemCudaNull);
  EXPECT_EQ(machine.run(TandemCudaSwiglu{}), kTandemCudaNull);
  EXPECT_EQ(machine.run(TandemCudaSwigluBackward{}), kTandemCudaNull);
  EXPECT_EQ(machine.run(TandemCudaAdd{}), kTandemCudaNull);
}

}  // namespace
}  // namespace tandem::kernels::cuda
