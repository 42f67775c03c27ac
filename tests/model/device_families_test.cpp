// Every kind of model and number format on a device: the bits of the CPU's AVX2 kernels, whatever the order of work.
#include <gtest/gtest.h>

#include <numeric>

#include "model/executor.h"
#include "model/weights.h"
#include "tests/model/emulated.h"
#include "tests/model/same_answers.h"
#include "tests/model/small_families.h"

namespace tandem::model {
namespace {

std::shared_ptr<Weights> weights_of(const ModelConfig& config, WeightFormat format) {
  auto made = Weights::create(config, false, format == WeightFormat::kFloat32 ? WeightFormat::kBf16 : format);
  if (!made) throw std::runtime_error(made.error().to_string());
  auto weights = std::make_shared<Weights>(std::move(*made));
  randomise(*weights, 3);
  for (auto& value : weights->flat()) value = kernels::to_bf16(kernels::to_float(value) * 3);
  if (format != WeightFormat::kFloat32) return weights;
  auto wide = std::make_shared<Weights>(std::move(*Weights::create(config, false, format)));
  for (size_t i = 0; i < weights->flat().size(); ++i) wide->flat<float>()[i] = kernels::to_float(weights->flat()[i]);
  return wide;
}

// What a prompt of two sequences in chunks, then steps of both say: draws of all kinds, logprobs, likeliest tokens; the
// last steps are graphs of a device.
std::vector<Answer> said_on(const Place& place, const ModelConfig& config, WeightFormat format) {
  auto weights = weights_of(config, format);
  EXPECT_TRUE(place.ready(*weights));
  auto executor = make_executor(weights, place, {.pages = 8, .max_positions = 200});
  EXPECT_TRUE(executor) << executor.error().to_string();
  if (!executor) return {};
  std::vector<int32_t> first(90), second(70);
  for (size_t i = 0; i < first.size(); ++i) first[i] = static_cast<int32_t>(i * 37 % 150);
  for (size_t i = 0; i < second.size(); ++i) second[i] = static_cast<int32_t>(i * 11 % 150);
  const std::vector<int> first_pages = {5, 0}, second_pages = {3, 7};
  EXPECT_TRUE((*executor)->clear(std::vector<int>{5, 0, 3, 7}));
  std::vector<Answer> said;
  const auto run = [&](Plan plan) {
    plan.routes = config.experts.count > 0;
    const auto ticket = (*executor)->submit(std::move(plan));
    ASSERT_TRUE(ticket) << ticket.error().to_string();
    auto answer = (*executor)->collect(*ticket);
    ASSERT_TRUE(answer) << answer.error().to_string();
    said.push_back(std::move(*answer));
  };
  Plan chunk;
  chunk.batch.add(std::span(first).first(50), 0, first_pages);
  chunk.picks = {{0, 7}, {0, 9}, {3, 2}, {49, first[50]}};
  chunk.likeliest = {1, 49};
  chunk.tops = {{.row = 2, .count = 5}};
  run(chunk);
  Plan rest;
  rest.batch.add(std::span(first).subspan(50), 50, first_pages);
  rest.batch.add(second, 0, second_pages);
  rest.draws = {
      {.row = 39, .seed = 5, .position = 90},
      {.row = 109, .sampling = {.temperature = 0.7f, .top_k = 20, .top_p = 0.9f}, .seed = 6, .position = 70},
      {.row = 109, .sampling = {.temperature = 0}, .position = 70},
      {.row = 39, .sampling = {.min_p = 0.2f}, .seed = 8, .position = 90, .bias = {{4, 3.0f}, {9, -2.0f}}},
      {.row = 39, .seed = 9, .position = 90, .mask = [](std::span<uint64_t> allowed) { allowed[0] = 0xff00ff00; }}};
  run(rest);
  Plan step;
  step.batch.add(std::vector<int32_t>{said[1].draws[0].token}, 90, first_pages);
  step.batch.add(std::vector<int32_t>{said[1].draws[1].token}, 70, second_pages);
  step.draws = {{.row = 0, .seed = 5, .position = 91}, {.row = 1, .seed = 6, .position = 71}};
  run(step);
  // A guess that is checked; its rows are filled up.
  const std::vector<int32_t> guess = {8, 140, 3, 77, 12, 0, 149, 31, 64};
  Plan check;
  check.batch.add(guess, 91, first_pages);
  for (int row = 0; row < static_cast<int>(guess.size()); ++row)
    check.draws.push_back({.row = row, .seed = 7, .position = static_cast<uint64_t>(92 + row)});
  for (int time = 0; time < 4; ++time) run(check);
  if (place.device.kind != kernels::Device::Kind::kCpu) {
    EXPECT_EQ((*executor)->graphs().launched, 2U);
  }
  return said;
}

const Place kAvx2{.device = {.kind = kernels::Device::Kind::kCpu, .isa = kernels::Isa::kAvx2}, .threads = 2};
constexpr WeightFormat kFormats[] = {WeightFormat::kBf16, WeightFormat::kFp8, WeightFormat::kMxfp8,
                                     WeightFormat::kFloat32};

Place emulated_tensor(int index) {
  return {.device = {
              .kind = kernels::Device::Kind::kEmulated, .index = index, .kernels = kernels::Device::Kernels::kTensor}};
}

// Where there is one: scripts/gpu-check carries these tests to it.
TEST(CudaDeviceFamilies, the_first_gpu_has_the_bits_of_the_model_of_its_tensor_cores) {
  const auto gpu = kernels::find_device("cuda:0:tensor");
  if (!gpu) GTEST_SKIP() << gpu.error().to_string();
  for (const SmallFamily& family : small_families()) {
    for (const auto format : kFormats) {
      SCOPED_TRACE(std::string(family.name) + " in " + to_string(format));
      expect_same(said_on({.device = *gpu}, family.config, format), said_on(emulated_tensor(0), family.config, format));
    }
  }
}
TEST(CudaDeviceFamilies, the_first_gpu_has_the_bits_of_avx2) {
  const auto gpu = kernels::find_device("cuda:0");
  if (!gpu) GTEST_SKIP() << gpu.error().to_string();
  for (const SmallFamily& family : small_families()) {
    for (const auto format : kFormats) {
      SCOPED_TRACE(std::string(family.name) + " in " + to_string(format));
      expect_same(said_on({.device = *gpu}, family.config, format), said_on(kAvx2, family.config, format));
    }
  }
}

TEST(DeviceFamilies, each_kind_of_model_in_each_format_has_the_bits_of_avx2) {
  int device = 0;
  for (const SmallFamily& family : small_families()) {
    for (const auto format : kFormats) {
      SCOPED_TRACE(std::string(family.name) + " in " + to_string(format));
      const Place emulated{.device = {.kind = kernels::Device::Kind::kEmulated, .index = device++ % 8}, .threads = 1};
      expect_same(said_on(emulated, family.config, format), said_on(kAvx2, family.config, format));
    }
  }
}

}  // namespace
}  // namespace tandem::model
