// The tape of a device: logprobs, gradients and steps have the bits of the CPU's AVX2 kernels, whatever the order in
// which an emulated device does its work.
#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/model/emulated.h"
#include "tests/model/small_families.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {
namespace {

// Those that a device trains.
std::vector<model::SmallFamily> trained_families() {
  auto all = model::small_families();
  std::erase_if(all, [](const auto& family) { return family.config.latent.rank > 0; });
  return all;
}

model::Weights random_weights(const model::ModelConfig& config, model::WeightFormat format) {
  auto weights = model::Weights::create(config, true, format);
  if (!weights) throw std::runtime_error(weights.error().to_string());
  model::randomise(*weights, 5);
  for (auto& value : weights->flat()) value = kernels::to_bf16(kernels::to_float(value) * 3);
  return std::move(*weights);
}

// Two groups that share prompts of more than a page, so that branches begin in the middle of one.
std::vector<Sample> sampled(int vocabulary) {
  Random random(17);
  std::vector<Sample> samples;
  for (uint64_t group = 0; group < 2; ++group) {
    std::vector<int32_t> prompt(70 + 9 * group);
    for (auto& token : prompt) token = static_cast<int32_t>(random.below(static_cast<uint64_t>(vocabulary)));
    for (int i = 0; i < 3; ++i) {
      Sample sample{.tokens = prompt, .advantage = i - 0.8, .group = group};
      for (int t = 0; t < 8 + 5 * i; ++t)
        sample.tokens.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(vocabulary))));
      sample.trained.assign(sample.tokens.size(), 0);
      std::fill(sample.trained.begin() + static_cast<long>(prompt.size()), sample.trained.end(), 1);
      sample.logprobs.assign(sample.tokens.size(), -4.0f);
      sample.versions.assign(sample.tokens.size(), 0);
      samples.push_back(std::move(sample));
    }
  }
  return samples;
}

struct Learned {
  std::vector<StepMetrics> metrics;
  Digest weights;
};
Learned learn_on(const model::Place& place, const model::ModelConfig& config, model::WeightFormat format,
                 const OptimizerSettings& settings = {}, const model::ModelConfig* teacher = nullptr) {
  auto learner = Learner::create(random_weights(config, format), place, settings);
  EXPECT_TRUE(learner) << learner.error().to_string();
  Algorithm algorithm;
  algorithm.kl = {.estimator = Kl::Estimator::kK3, .coefficient = 0.1};
  EXPECT_TRUE(learner->keep_reference());
  if (teacher != nullptr) {
    algorithm.teacher.weight = 0.1;
    const Status kept = learner->keep_teacher(random_weights(*teacher, format));
    EXPECT_TRUE(kept) << kept.to_string();
  }
  Learned learned;
  for (uint64_t step = 0; step < 2; ++step) {
    auto metrics = learner->reinforce(sampled(config.vocabulary), algorithm, step);
    EXPECT_TRUE(metrics) << metrics.error().to_string();
    if (metrics) learned.metrics.push_back(*metrics);
  }
  learned.weights = learner->weights().digest();
  return learned;
}

void expect_same(const Learned& got, const Learned& expected) {
  ASSERT_EQ(got.metrics.size(), expected.metrics.size());
  for (size_t i = 0; i < got.metrics.size(); ++i) {
    EXPECT_EQ(got.metrics[i].loss, expected.metrics[i].loss);
    EXPECT_EQ(got.metrics[i].grad_norm, expected.metrics[i].grad_norm);
    EXPECT_EQ(got.metrics[i].entropy, expected.metrics[i].entropy);
    EXPECT_EQ(got.metrics[i].kl, expected.metrics[i].kl);
    EXPECT_EQ(got.metrics[i].of_loss, expected.metrics[i].of_loss);
    EXPECT_GT(got.metrics[i].grad_norm, 0);
  }
  EXPECT_EQ(got.weights, expected.weights);
}

model::Place emulated(int index) { return {.device = {.kind = kernels::Device::Kind::kEmulated, .index = index}}; }
const model::Place kAvx2{.device = {.kind = kernels::Device::Kind::kCpu, .isa = kernels::Isa::kAvx2}, .threads = 2};

constexpr model::WeightFormat kFormats[] = {model::WeightFormat::kBf16, model::WeightFormat::kFp8,
                                            model::WeightFormat::kMxfp8};

model::Place emulated_tensor(int index) {
  model::Place place = emulated(index);
  place.device.kernels = kernels::Device::Kernels::kTensor;
  return place;
}

// Where there is one: scripts/gpu-check carries these tests to it.
TEST(CudaDeviceTape, steps_on_the_first_gpu_have_the_bits_of_the_model_of_its_tensor_cores) {
  const auto gpu = kernels::find_device("cuda:0:tensor");
  if (!gpu) GTEST_SKIP() << gpu.error().to_string();
  for (const auto& [name, config] : trained_families()) {
    for (const auto format : kFormats) {
      SCOPED_TRACE(std::string(name) + " in " + to_string(format));
      expect_same(learn_on({.device = *gpu}, config, format), learn_on(emulated_tensor(0), config, format));
    }
  }
}
TEST(CudaDeviceTape, steps_on_the_first_gpu_have_the_bits_of_avx2) {
  const auto gpu = kernels::find_device("cuda:0");
  if (!gpu) GTEST_SKIP() << gpu.error().to_string();
  for (const auto& [name, config] : trained_families()) {
    for (const auto format : kFormats) {
      SCOPED_TRACE(std::string(name) + " in " + to_string(format));
      expect_same(learn_on({.device = *gpu}, config, format), learn_on(kAvx2, config, format));
    }
  }
}

TEST(DeviceTape, steps_of_each_kind_of_model_in_each_format_have_the_bits_of_avx2) {
  int device = 0;
  for (const auto& [name, config] : trained_families()) {
    for (const auto format : kFormats) {
      SCOPED_TRACE(std::string(name) + " in " + to_string(format));
      expect_same(learn_on(emulated(device++ % 8), config, format), learn_on(kAvx2, config, format));
    }
  }
}

TEST(DeviceTape, factors_of_an_adapter_learn_with_the_bits_of_avx2) {
  OptimizerSettings settings;
  settings.low_rank = {.rank = 4};
  const auto config = model::small_model("llama");
  expect_same(learn_on(emulated(0), config, model::WeightFormat::kBf16, settings),
              learn_on(kAvx2, config, model::WeightFormat::kBf16, settings));
}

TEST(DeviceTape, a_teacher_of_another_shape_says_the_same_there) {
  const auto config = model::small_model("llama");
  auto teacher = config;
  teacher.layers += 1;
  for (const auto format : kFormats) {
    const Learned got = learn_on(emulated(0), config, format, {}, &teacher);
    expect_same(got, learn_on(kAvx2, config, format, {}, &teacher));
    ASSERT_FALSE(got.metrics.empty());
    EXPECT_NE(got.metrics[0].of_loss.at("teacher_kl"), 0);
  }
}

TEST(DeviceTape, what_a_device_does_not_train_is_refused_by_name) {
  const auto latent = model::small_families().back().config;
  ASSERT_GT(latent.latent.rank, 0);
  const auto learner = Learner::create(random_weights(latent, model::WeightFormat::kBf16), emulated(0), {});
  ASSERT_FALSE(learner);
  EXPECT_EQ(learner.error().code(), Code::kUnfit);
  EXPECT_NE(learner.error().to_string().find("latent attention is trained on the CPU alone"), std::string::npos);
}

}  // namespace
}  // namespace tandem::trainer
