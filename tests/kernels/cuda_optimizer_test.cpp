#include "kernels/optimizer.h"
#include "tests/kernels/cuda_machines.h"

namespace tandem::kernels::cuda {
namespace {

constexpr size_t kCount = 1003;

Bytes adamw_case(Machine& machine) {
  const TandemCudaAdamw a{.grad = machine.place(random_floats(kCount, 1)),
                          .master = machine.place(random_floats(kCount, 2)),
                          .first_moment = machine.place(std::vector<float>(kCount, 0.1f)),
                          .second_moment = machine.place(std::vector<float>(kCount, 0.2f)),
                          .weight = machine.room<uint16_t>(kCount),
                          .count = kCount,
                          .grad_scale = 0.5f,
                          .learning_rate = 0.01f,
                          .beta1 = 0.9f,
                          .beta2 = 0.95f,
                          .epsilon = 1e-8f,
                          .weight_decay = 0.1f,
                          .step = 3};
  EXPECT_EQ(machine.run(a), 0);
  Bytes bytes;
  append(bytes, machine.fetch(a.master, kCount));
  append(bytes, machine.fetch(a.first_moment, kCount));
  append(bytes, machine.fetch(a.second_moment, kCount));
  append(bytes, machine.fetch(a.weight, kCount));
  return bytes;
}
TANDEM_CUDA_CASE_TESTS(adamw)

TEST(CudaHost, adamw_gives_the_bits_of_the_avx2_kernel) {
  Stream cpu = std::move(*Stream::cpu(2, Isa::kAvx2));
  const auto grad = random_floats(kCount, 1);
  auto master = random_floats(kCount, 2);
  std::vector<float> first(kCount, 0.1f), second(kCount, 0.2f);
  std::vector<bf16> weight(kCount);
  ASSERT_TRUE(kernels::adamw(cpu, {.grad = grad.data(),
                                   .master = master.data(),
                                   .first_moment = first.data(),
                                   .second_moment = second.data(),
                                   .weight = weight.data(),
                                   .count = kCount,
                                   .grad_scale = 0.5f,
                                   .learning_rate = 0.01f,
                                   .beta1 = 0.9f,
                                   .beta2 = 0.95f,
                                   .epsilon = 1e-8f,
                                   .weight_decay = 0.1f,
                                   .step = 3}));
  Bytes expected;
  append(expected, master);
  append(expected, first);
  append(expected, second);
  append(expected, weight);
  HostMachine machine;
  EXPECT_TRUE(adamw_case(machine) == expected);
  EXPECT_EQ(machine.run(TandemCudaAdamw{}), kTandemCudaNull);
}

// Moments in bf16, and a weight of 150 rows that becomes E4M3 on the way.
constexpr int kColumns = 140;
constexpr size_t kCoded = size_t{150} * kColumns;
TandemCudaAdamw coded_adamw(Machine& machine) {
  return {.grad = machine.place(random_floats(kCoded, 1)),
          .master = machine.place(random_floats(kCoded, 2)),
          .first_moment_bf16 = machine.place(random_bf16(kCoded, 3)),
          .second_moment_bf16 = machine.place(std::vector<bf16>(kCoded, to_bf16(0.2f))),
          .weight = machine.room<uint16_t>(kCoded),
          .count = kCoded,
          .grad_scale = 0.5f,
          .learning_rate = 0.01f,
          .beta1 = 0.9f,
          .beta2 = 0.95f,
          .epsilon = 1e-8f,
          .weight_decay = 0.1f,
          .step = 3,
          .codes = machine.room<uint8_t>(kCoded),
          .scales = machine.room<uint8_t>(4),
          .columns = kColumns};
}
Bytes coded_adamw_case(Machine& machine) {
  const TandemCudaAdamw a = coded_adamw(machine);
  EXPECT_EQ(machine.run(a), 0);
  Bytes bytes;
  append(bytes, machine.fetch(a.master, kCoded));
  append(bytes, machine.fetch(a.first_moment_bf16, kCoded));
  append(bytes, machine.fetch(a.second_moment_bf16, kCoded));
  append(bytes, machine.fetch(a.weight, kCoded));
  append(bytes, machine.fetch(a.codes, kCoded));
  append(bytes, machine.fetch(a.scales, 4));
  return bytes;
}
Bytes coded_adamw_on_cpu(Stream& cpu) {
  const auto grad = random_floats(kCoded, 1);
  auto master = random_floats(kCoded, 2);
  auto first = random_bf16(kCoded, 3), second = std::vector<bf16>(kCoded, to_bf16(0.2f));
  std::vector<bf16> weight(kCoded);
  std::vector<e4m3> codes(kCoded);
  std::vector<e8m0> scales(4);
  EXPECT_TRUE(kernels::adamw(cpu, BasicAdamW<bf16>{.grad = grad.data(),
                                                   .master = master.data(),
                                                   .first_moment = first.data(),
                                                   .second_moment = second.data(),
                                                   .weight = weight.data(),
                                                   .count = kCoded,
                                                   .grad_scale = 0.5f,
                                                   .learning_rate = 0.01f,
                                                   .weight_decay = 0.1f,
                                                   .step = 3,
                                                   .codes = codes.data(),
                                                   .scales = scales.data(),
                                                   .columns = kColumns}));
  Bytes bytes;
  append(bytes, master);
  append(bytes, first);
  append(bytes, second);
  append(bytes, weight);
  append(bytes, codes);
  append(bytes, scales);
  return bytes;
}
TANDEM_CUDA_AGAINST_AVX2_TESTS(coded_adamw)

TEST(CudaHost, adamw_refuses_two_kinds_of_moments_and_codes_that_do_not_fit) {
  HostMachine machine;
  const auto code = [&](auto change) {
    TandemCudaAdamw a = coded_adamw(machine);
    change(a);
    return machine.run(a);
  };
  EXPECT_EQ(code([&](auto& a) { a.first_moment = machine.room<float>(1); }), kTandemCudaShape);
  EXPECT_EQ(code([](auto& a) { a.second_moment_bf16 = nullptr; }), kTandemCudaNull);
  EXPECT_EQ(code([](auto& a) { a.beta2 = 0.999f; }), kTandemCudaShape);
  EXPECT_EQ(code([](auto& a) { a.columns = 139; }), kTandemCudaShape);
  EXPECT_EQ(code([](auto& a) { a.scales = nullptr; }), kTandemCudaNull);
  EXPECT_EQ(code([](auto& a) { a.step = 0; }), kTandemCudaSize);
}

constexpr size_t kValues = 3 * 65536 + 77;  // four pieces, the last one short

Bytes sum_of_squares_case(Machine& machine) {
  const TandemCudaSumOfSquares s{.values = machine.place(random_floats(kValues, 3)),
                                 .count = kValues,
                                 .result = machine.room<double>(1),
                                 .workspace = machine.room<char>(4 * sizeof(double)),
                                 .workspace_bytes = 4 * sizeof(double)};
  EXPECT_EQ(machine.run(s), 0);
  Bytes bytes;
  append(bytes, machine.fetch(s.result, 1));
  return bytes;
}
TANDEM_CUDA_CASE_TESTS(sum_of_squares)

TEST(CudaHost, the_sum_of_squares_gives_the_bits_of_the_avx2_kernel) {
  Stream cpu = std::move(*Stream::cpu(2, Isa::kAvx2));
  const auto values = random_floats(kValues, 3);
  Bytes expected;
  append(expected, std::vector<double>{*kernels::sum_of_squares(cpu, values.data(), kValues)});
  HostMachine machine;
  EXPECT_TRUE(sum_of_squares_case(machine) == expected);
}

TEST(CudaHost, the_sum_of_no_squares_is_zero_and_a_small_workspace_is_refused) {
  HostMachine machine;
  TandemCudaSumOfSquares s{.values = machine.place(std::vector<float>{2}),
                           .count = 0,
                           .result = machine.room<double>(1),
                           .workspace = machine.room<char>(8),
                           .workspace_bytes = 0};
  ASSERT_EQ(machine.run(s), 0);
  EXPECT_EQ(machine.fetch(s.result, 1)[0], 0);
  s.count = 1;
  EXPECT_EQ(machine.run(s), kTandemCudaWorkspace);
}

}  // namespace
}  // namespace tandem::kernels::cuda
