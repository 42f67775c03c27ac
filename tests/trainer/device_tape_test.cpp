// The tape of a device: logprobs, gradients and steps have the bits of the CPU's AVX2 kernels, whatever the order in
// which an emulated device does its work.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "kernels/device_stream.h"
#include "model/routes.h"
#include "tests/model/emulated.h"
#include "tests/model/small_families.h"
#include "trainer/learn/algorithm_config.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {
namespace {

// Latent attention also without a latent for queries, with values that do not fill their panels.
std::vector<model::SmallFamily> trained_families() {
  auto all = model::small_families();
  model::ModelConfig plain = model::small_model("deepseek_v3");
  plain.heads = plain.kv_heads = 3;
  plain.head_size = 30;
  plain.latent = {.rank = 72, .plain = 20, .rope_dim = 10, .value = 26};
  all.push_back({"latent_attention_of_states", plain});
  return all;
}

model::Weights random_weights(const model::ModelConfig& config, model::WeightFormat format) {
  auto weights = model::Weights::create(config, true, format);
  if (!weights) throw std::runtime_error(weights.error().to_string());
  model::randomise(*weights, 5);
  for (auto& value : weights->flat()) value = kernels::to_bf16(kernels::to_float(value) * 3);
  return std::move(*weights);
}

// Groups that share prompts of more than a page, so that branches begin in the middle of one.
// Samples of a mixture have routes, which are their prompt's and else those of nobody.
std::vector<Sample> sampled(const model::ModelConfig& config, uint64_t groups = 2) {
  const int vocabulary = config.vocabulary;
  const RouteShape shape = model::route_shape(config);
  Random random(17), chance(18);
  std::vector<Sample> samples;
  for (uint64_t group = 0; group < groups; ++group) {
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
      sample.routes.shape = shape;
      sample.routes.resize(sample.tokens.size());
      const size_t alike = i == 0 ? 0 : prompt.size() - 5;
      for (size_t t = 0; shape.any() && t + 1 < sample.tokens.size(); ++t) {
        std::vector<uint8_t> row(shape.row_bytes());
        for (size_t at = 0; at < shape.choices(); at += shape.top_k) {
          const auto first = static_cast<uint32_t>(chance.below(shape.experts));
          for (uint32_t rank = 0; rank < shape.top_k; ++rank) shape.set(row, at + rank, (first + rank) % shape.experts);
        }
        if (t < alike) row.assign(samples.back().routes.row(t).begin(), samples.back().routes.row(t).end());
        sample.routes.record(t, row);
      }
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
                 const OptimizerSettings& settings = {}, const model::ModelConfig* teacher = nullptr,
                 uint64_t groups = 2) {
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
    auto metrics = learner->reinforce(sampled(config, groups), algorithm, step);
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
    EXPECT_EQ(got.metrics[i].routes_taken, expected.metrics[i].routes_taken);
    EXPECT_EQ(got.metrics[i].routes_changed, expected.metrics[i].routes_changed);
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

// Slots of several passes, fewer and more than there are groups; the two updates of a step have half of the groups
// each.
TEST(DeviceTape, slots_passes_and_updates_of_any_number_have_the_bits_of_avx2) {
  struct Case {
    const char* family;
    int slots, minibatches;
  };
  for (const auto& [family, slots, minibatches] : {Case{"llama", 1, 1}, {"mixture", 2, 2}, {"llama", 8, 2}}) {
    SCOPED_TRACE(testing::Message() << family << ", " << slots << " slots, " << minibatches << " updates");
    const auto families = trained_families();
    const auto config = std::ranges::find(families, std::string_view(family), &model::SmallFamily::name)->config;
    OptimizerSettings settings{.max_pass_tokens = 100, .slots = slots};
    settings.updates.minibatches = minibatches;
    const auto format = model::WeightFormat::kBf16;
    expect_same(learn_on(emulated(slots % 8), config, format, settings, nullptr, 5),
                learn_on(kAvx2, config, format, settings, nullptr, 5));
  }
}

// A critic reads the states of the device, and gives it their gradients.
TEST(DeviceTape, critics_have_the_bits_of_avx2) {
  const auto algorithm = *algorithm_from_json(Json::parse(R"({"name": "ppo", "value": {"trunk": true}})"));
  const auto families = trained_families();
  const auto config = std::ranges::find(families, std::string_view("llama"), &model::SmallFamily::name)->config;
  const auto learned_on = [&](const model::Place& place) {
    auto learner =
        Learner::create(random_weights(config, model::WeightFormat::kBf16), place, {.learning_rate = {.peak = 1e-3}});
    EXPECT_TRUE(learner) << learner.error().to_string();
    EXPECT_TRUE(learner->prepare(algorithm));
    Learned learned;
    for (uint64_t step = 0; step < 3; ++step) {
      auto metrics = learner->reinforce(sampled(config), algorithm, step);
      EXPECT_TRUE(metrics) << metrics.error().to_string();
      if (metrics) learned.metrics.push_back(*metrics);
    }
    learned.weights = learner->weights().digest();
    return learned;
  };
  const Learned host = learned_on(kAvx2);
  expect_same(learned_on(emulated(3)), host);
  EXPECT_TRUE(host.metrics.back().of_loss.contains("value_loss"));
}

TEST(DeviceTape, gradients_on_the_device_take_the_memory_that_is_said_beforehand) {
  const auto config = model::small_model("llama");
  const OptimizerSettings settings{.slots = 4};
  auto learner = Learner::create(random_weights(config, model::WeightFormat::kBf16), emulated(0), settings);
  ASSERT_TRUE(learner) << learner.error().to_string();
  EXPECT_EQ(learner->memory().slots, 0);
  ASSERT_TRUE(learner->imitate(sampled(config, 8)));
  const auto said = Learner::memory_of(config, model::WeightFormat::kBf16, settings, false, 1, nullptr, true);
  ASSERT_TRUE(said) << said.error().to_string();
  EXPECT_EQ(said->slots, learner->memory().slots);
  EXPECT_EQ(said->slots, 3 * learner->weights().layout().elements * sizeof(float));
}

// The sum of slots on a device beside that of the host.
class DeviceSlotSum : public testing::Test {
 protected:
  static constexpr size_t kSlots = 8;
  static constexpr float kUntouched = 7;
  DeviceSlotSum() {
    auto made = Tape::on_device(emulated(1).device, weights_, config_.max_positions);
    if (!made || !weights_.pack(stream_)) throw std::runtime_error("no tape");
    device_ = std::move(*made);
  }

  // Two passes.
  Result<bool> add_slot(Tape& tape, size_t slot, const Slice& gradients, bool fails) {
    for (size_t pass = 0; pass < 2; ++pass) {
      if (pass == 1 && fails) return fail(Status::unavailable("no more"));
      const auto& tokens = samples_[3 * slot + pass].tokens;
      const std::span<const int32_t> view = tokens;
      std::vector<TokenPick> picks;
      std::vector<float> grads;
      for (size_t i = 1; i < tokens.size(); ++i) {
        picks.push_back({static_cast<int32_t>(i - 1), tokens[i]});
        grads.push_back(0.01f * static_cast<float>(i % 7) - 0.02f);
      }
      const TokenTree tree = merge(std::span(&view, 1));
      TRY(tape.forward(stream_, weights_, tree, picks, nullptr, pass == 0 ? 1.0f : kernels::logit_scale_at(0.7f)));
      TRY(tape.backward(grads, gradients, nullptr, learned_));
    }
    return true;
  }

  // `failing` has an error between its passes.
  std::vector<float> sum(Tape& tape, SlotSum& slots, size_t failing = kSlots) {
    std::vector<float> into(weights_.layout().elements, kUntouched);
    for (const Piece& range : slots.learned())
      std::fill_n(into.begin() + static_cast<long>(range.begin), range.count, 0.0f);
    const auto add = [&](size_t slot, const Slice& gradients) {
      return add_slot(tape, slot, gradients, slot == failing);
    };
    const auto added = slots.add(model::slice_of("gradients", std::span(into)), used_, add);
    EXPECT_EQ(static_cast<bool>(added), failing == kSlots);
    return into;
  }

  model::ModelConfig config_ = model::small_model("llama");
  model::Weights weights_ = random_weights(config_, model::WeightFormat::kBf16);
  kernels::Stream stream_ = std::move(*kAvx2.host_stream());
  Tape host_{config_, config_.max_positions};
  std::unique_ptr<Tape> device_;
  std::vector<Sample> samples_ = sampled(config_, kSlots);
  std::vector<bool> used_ = std::vector<bool>(kSlots, true);
  std::vector<uint8_t> learned_;
};

TEST_F(DeviceSlotSum, has_the_bits_of_the_hosts_also_after_an_error) {
  SlotSum expected(weights_.layout(), {}), got(weights_.layout(), {}, device_->slot_memory(0));
  for (const size_t failing : {kSlots, size_t{0}, size_t{1}, size_t{6}}) {
    if (failing < kSlots) sum(*device_, got, failing);
    EXPECT_EQ(sum(*device_, got), sum(host_, expected)) << failing;
  }
  used_[0] = used_[3] = used_[4] = used_[5] = false;
  EXPECT_EQ(sum(*device_, got), sum(host_, expected));
}

TEST_F(DeviceSlotSum, leaves_alone_what_is_not_learned) {
  learned_.assign(weights_.layout().parameters.size(), 0);
  for (size_t i = 0; i < learned_.size(); i += 3) learned_[i] = 1;
  SlotSum expected(weights_.layout(), learned_), got(weights_.layout(), learned_, device_->slot_memory(0));
  const auto summed = sum(*device_, got);
  EXPECT_EQ(summed, sum(host_, expected));
  EXPECT_GT(std::ranges::count(summed, kUntouched), 0);
}

TEST_F(DeviceSlotSum, is_the_hosts_where_the_device_has_too_little_memory) {
  SlotSum expected(weights_.layout(), {}), got(weights_.layout(), {}, device_->slot_memory(size_t{1} << 30));
  SlotSum there(weights_.layout(), {}, device_->slot_memory(0));
  const auto sums = sum(host_, expected);
  EXPECT_EQ(sum(*device_, got), sums);
  EXPECT_EQ(got.bytes(), expected.bytes());
  EXPECT_EQ(sum(*device_, there), sums);
  EXPECT_GT(there.bytes(), got.bytes());
}

TEST_F(DeviceSlotSum, says_what_to_do_where_the_device_has_no_memory_for_it) {
  const auto memory = device_->slot_memory(0);
  const auto level = memory->level({.name = "slots.0", .elements = size_t{1} << 28});
  ASSERT_FALSE(level);
  EXPECT_EQ(level.error().code(), Code::kExhausted);
  EXPECT_NE(level.error().to_string().find("lower trainer.slots"), std::string::npos) << level.error().to_string();
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

TEST(DeviceTape, a_learner_that_gives_its_device_back_between_steps_learns_the_same) {
  const auto config = model::small_model("llama");
  const auto stream = kernels::DeviceStream::open(emulated(5).device);
  ASSERT_TRUE(stream) << stream.error().to_string();
  const size_t free = stream->free_bytes();
  std::vector<Digest> learned;
  for (const bool gives_back : {false, true}) {
    auto learner = Learner::create(random_weights(config, model::WeightFormat::kBf16), emulated(5), {.slots = 4});
    ASSERT_TRUE(learner) << learner.error().to_string();
    ASSERT_TRUE(learner->keep_reference());
    ASSERT_TRUE(learner->keep_teacher(random_weights(config, model::WeightFormat::kBf16)));
    Algorithm algorithm;
    algorithm.kl = {.estimator = Kl::Estimator::kK3, .coefficient = 0.1};
    algorithm.teacher.weight = 0.1;
    for (uint64_t step = 0; step < 3; ++step) {
      const auto metrics = learner->reinforce(sampled(config), algorithm, step);
      ASSERT_TRUE(metrics) << metrics.error().to_string();
      EXPECT_LT(stream->free_bytes(), free);
      if (!gives_back) continue;
      learner->give_back_device();
      EXPECT_EQ(stream->free_bytes(), free);
    }
    learned.push_back(learner->weights().digest());
  }
  EXPECT_EQ(learned[1], learned[0]);
}

TEST(DeviceTape, a_sample_longer_than_the_model_is_refused_as_on_a_cpu) {
  auto config = model::small_model("llama");
  config.max_positions = 64;  // the samples have more
  std::vector<std::string> said;
  for (const model::Place& place : {kAvx2, emulated(0)}) {
    auto learner = Learner::create(random_weights(config, model::WeightFormat::kBf16), place, {});
    ASSERT_TRUE(learner) << learner.error().to_string();
    const auto metrics = learner->reinforce(sampled(config), {}, 0);
    ASSERT_FALSE(metrics);
    said.push_back(metrics.error().to_string());
  }
  EXPECT_EQ(said[1], said[0]);
  EXPECT_NE(said[0].find("outside the table of 64"), std::string::npos) << said[0];
}

TEST(DeviceTape, what_a_device_does_not_train_is_refused_by_name) {
  const auto weights = model::Weights::create(model::small_model("llama"), false, model::WeightFormat::kFloat32);
  ASSERT_TRUE(weights) << weights.error().to_string();
  const auto tape = Tape::on_device(emulated(0).device, *weights, 64);
  ASSERT_FALSE(tape);
  EXPECT_EQ(tape.error().code(), Code::kUnfit);
  EXPECT_NE(tape.error().to_string().find("float32 runs on the CPU alone"), std::string::npos);
}

}  // namespace
}  // namespace tandem::trainer
