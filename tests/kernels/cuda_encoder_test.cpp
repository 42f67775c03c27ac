#include "kernels/encoder_ops.h"
#include "tests/kernels/cuda_machines.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kRows = 130, kWidth = 100;
constexpr size_t kElements = size_t{kRows} * kWidth;

Bytes layer_norm_case(Machine& machine) {
  const TandemCudaLayerNorm n{.x = machine.place(random_floats(kElements, 1)),
                              .weight = machine.place(random_floats(kWidth, 2)),
                              .bias = machine.place(random_floats(kWidth, 3)),
                              .out = machine.room<float>(kElements),
                              .epsilon = 1e-5f,
                              .rows = kRows,
                              .width = kWidth};
  EXPECT_EQ(machine.run(n), 0);
  const size_t workspace = kElements * 4;
  const TandemCudaLayerNormBackward b{.x = n.x,
                                      .weight = n.weight,
                                      .grad_out = machine.place(random_floats(kElements, 4)),
                                      .grad_x = machine.room<float>(kElements),
                                      .grad_weight = machine.place(random_floats(kWidth, 5)),
                                      .grad_bias = machine.place(random_floats(kWidth, 6)),
                                      .epsilon = 1e-5f,
                                      .rows = kRows,
                                      .width = kWidth,
                                      .workspace = machine.room<char>(workspace),
                                      .workspace_bytes = workspace};
  EXPECT_EQ(machine.run(b), 0);
  Bytes bytes;
  append(bytes, machine.fetch(n.out, kElements));
  append(bytes, machine.fetch(b.grad_x, kElements));
  append(bytes, machine.fetch(b.grad_weight, kWidth));
  append(bytes, machine.fetch(b.grad_bias, kWidth));
  return bytes;
}
Bytes layer_norm_on_cpu(Stream& cpu) {
  const auto x = random_floats(kElements, 1), weight = random_floats(kWidth, 2), bias = random_floats(kWidth, 3),
             grad_out = random_floats(kElements, 4);
  std::vector<float> out(kElements), grad_x(kElements);
  auto grad_weight = random_floats(kWidth, 5), grad_bias = random_floats(kWidth, 6);
  EXPECT_TRUE(layer_norm(cpu, {.x = x.data(),
                               .weight = weight.data(),
                               .bias = bias.data(),
                               .out = out.data(),
                               .epsilon = 1e-5f,
                               .rows = kRows,
                               .width = kWidth}));
  EXPECT_TRUE(layer_norm_backward(cpu, {.x = x.data(),
                                        .weight = weight.data(),
                                        .grad_out = grad_out.data(),
                                        .grad_x = grad_x.data(),
                                        .grad_weight = grad_weight.data(),
                                        .grad_bias = grad_bias.data(),
                                        .epsilon = 1e-5f,
                                        .rows = kRows,
                                        .width = kWidth}));
  Bytes bytes;
  for (const auto& values : {out, grad_x, grad_weight, grad_bias}) append(bytes, values);
  return bytes;
}
TANDEM_CUDA_AGAINST_AVX2_TESTS(layer_norm)

// From where the bell is 0 on both sides, and infinities.
std::vector<float> along_the_bell() {
  std::vector<float> x;
  for (int i = -2000; i <= 2000; ++i) x.push_back(static_cast<float>(i) * 0.01f);
  x.insert(x.end(), {0.0f, -0.0f, INFINITY, -INFINITY, 1e-38f, -13.2f});
  return x;
}
Bytes gelu_case(Machine& machine) {
  const auto x = along_the_bell();
  const auto count = static_cast<int64_t>(x.size());
  const TandemCudaGelu g{.x = machine.place(x), .count = count};
  EXPECT_EQ(machine.run(g), 0);
  const TandemCudaGeluBackward b{
      .x = machine.place(x), .grad = machine.place(random_floats(x.size(), 1)), .count = count};
  EXPECT_EQ(machine.run(b), 0);
  Bytes bytes;
  append(bytes, machine.fetch(g.x, x.size()));
  append(bytes, machine.fetch(b.grad, x.size()));
  return bytes;
}
Bytes gelu_on_cpu(Stream& cpu) {
  auto x = along_the_bell();
  const auto before = x;
  auto grad = random_floats(x.size(), 1);
  EXPECT_TRUE(gelu(cpu, x.data(), x.size()));
  EXPECT_TRUE(gelu_backward(cpu, before.data(), before.size(), grad.data()));
  Bytes bytes;
  append(bytes, x);
  append(bytes, grad);
  return bytes;
}
TANDEM_CUDA_AGAINST_AVX2_TESTS(gelu)

// Sequences of one row, of two blocks and more, and of none.
const std::vector<int32_t> kEnds = {1, 100, 100, 165};
constexpr int kTokens = 165, kHeads = 2, kHeadSize = 24, kHeadsWidth = kHeads * kHeadSize, kStride = 3 * kHeadsWidth;
TandemCudaBidirectionalAttention both_ways(Machine& machine, const std::vector<float>& rows,
                                           const std::vector<int32_t>& ends) {
  const float* start = machine.place(rows);
  return {.queries = start,
          .keys = start + kHeadsWidth,
          .values = start + 2 * kHeadsWidth,
          .stride = kStride,
          .out = machine.room<float>(static_cast<size_t>(ends.back()) * kHeadsWidth),
          .out_stride = kHeadsWidth,
          .ends = machine.place(ends),
          .sequences = static_cast<int>(ends.size()),
          .rows = ends.back(),
          .heads = kHeads,
          .head_size = kHeadSize,
          .scale = 0.2f};
}
Bytes bidirectional_attention_case(Machine& machine) {
  const auto a = both_ways(machine, random_floats(kTokens * kStride, 1), kEnds);
  EXPECT_EQ(machine.run(a), 0);
  Bytes bytes;
  append(bytes, machine.fetch(a.out, kTokens * kHeadsWidth));
  return bytes;
}
Bytes bidirectional_attention_on_cpu(Stream& cpu) {
  const auto rows = random_floats(kTokens * kStride, 1);
  std::vector<float> out(kTokens * kHeadsWidth);
  EXPECT_TRUE(bidirectional_attention(cpu, {.queries = rows.data(),
                                            .keys = rows.data() + kHeadsWidth,
                                            .values = rows.data() + 2 * kHeadsWidth,
                                            .stride = kStride,
                                            .out = out.data(),
                                            .out_stride = kHeadsWidth,
                                            .ends = kEnds,
                                            .heads = kHeads,
                                            .head_size = kHeadSize,
                                            .scale = 0.2f}));
  Bytes bytes;
  append(bytes, out);
  return bytes;
}
TANDEM_CUDA_AGAINST_AVX2_TESTS(bidirectional_attention)

TEST(CudaHost, a_sequence_has_the_same_bits_alone_and_among_others) {
  HostMachine machine;
  const auto rows = random_floats(kTokens * kStride, 1);
  const auto all = both_ways(machine, rows, kEnds);
  ASSERT_EQ(machine.run(all), 0);
  const auto one = both_ways(machine, {rows.begin() + 100 * kStride, rows.end()}, {65});
  ASSERT_EQ(machine.run(one), 0);
  EXPECT_EQ(machine.fetch(one.out, 65 * kHeadsWidth), machine.fetch(all.out + 100 * kHeadsWidth, 65 * kHeadsWidth));
}

TEST(CudaHost, an_encoder_refuses_heads_strides_and_workspaces_that_do_not_fit) {
  HostMachine machine;
  auto a = both_ways(machine, random_floats(kStride, 1), {1});
  a.head_size = 257;
  EXPECT_EQ(machine.run(a), kTandemCudaShape);
  a.head_size = kHeadSize;
  a.stride = kHeadsWidth - 1;
  EXPECT_EQ(machine.run(a), kTandemCudaStride);
  EXPECT_EQ(machine.run(TandemCudaLayerNormBackward{}), kTandemCudaNull);
  EXPECT_EQ(machine.run(TandemCudaGelu{.x = nullptr, .count = 1}), kTandemCudaNull);
}

}  // namespace
}  // namespace tandem::kernels::cuda
