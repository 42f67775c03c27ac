// Samples that were drawn from a part of the tokens: the trainer has the sampler's bits over those, and no other token
// learns.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "rollout/engine/engine.h"
#include "tests/model/small_families.h"
#include "trainer/learn/algorithm_config.h"
#include "trainer/learn/learner.h"
#include "trainer/learn/segment_logprobs.h"

namespace tandem::trainer::kept_tests {
namespace {

constexpr float kTemperature = 0.8f;

// Steep enough that tokens differ in how likely they are.
model::Weights weights_of(const model::ModelConfig& config, bool learns) {
  auto weights = std::move(*model::Weights::create(config, learns));
  model::randomise(weights, 1);
  for (auto& value : weights.flat()) value = kernels::to_bf16(kernels::to_float(value) * 3);
  return weights;
}

const model::Place kCpu{.threads = 2};
const model::Place kAvx2{.device = {.kind = kernels::Device::Kind::kCpu, .isa = kernels::Isa::kAvx2}, .threads = 2};
model::Place emulated(kernels::Device::Kernels kernels) {
  return {.device = {.kind = kernels::Device::Kind::kEmulated, .index = 0, .kernels = kernels}};
}

Learner learner_of(const model::ModelConfig& config, OptimizerSettings settings = {},
                   const model::Place& place = kCpu) {
  settings.learning_rate = {.peak = 1e-3};
  settings.logit_scale = kernels::logit_scale_at(kTemperature);
  return std::move(*Learner::create(weights_of(config, true), place, settings));
}

std::vector<int32_t> words(uint64_t seed, size_t count) {
  Random random(seed);
  std::vector<int32_t> all(count);
  for (auto& token : all) token = static_cast<int32_t>(random.below(150));
  return all;
}

// Groups that an engine samples, two turns each; of each group one is drawn from all tokens.
std::vector<Sample> batch(const model::ModelConfig& config, rollout::Speculation speculation,
                          uint64_t* truncated = nullptr, const model::Place& place = kCpu) {
  auto weights = std::make_shared<model::Weights>(weights_of(config, false));
  EXPECT_TRUE(place.ready(*weights));
  auto engine = std::move(
      *rollout::Engine::create(weights, 7, place, {.slots = 5, .max_tokens = 128, .speculation = speculation}));
  std::vector<Sample> samples;
  const kernels::SamplingSettings cuts[] = {
      {}, {.top_p = 0.7f}, {.top_k = 6}, {.top_k = 9, .top_p = 0.9f, .min_p = 0.1f}};
  const auto turn = [&](size_t i) {
    return rollout::TurnRequest{.max_new_tokens = 9,
                                .sampling = cuts[i % 4],
                                .logit_scale = kernels::logit_scale_at(kTemperature),
                                .seed = i,
                                .record_kept = i % 4 != 0};
  };
  const auto add = [&](Sample& sample, int32_t token, float logprob, bool sampled, std::span<const int32_t> kept) {
    sample.tokens.push_back(token);
    sample.trained.push_back(sampled);
    sample.logprobs.push_back(logprob);
    sample.versions.push_back(7);
    sample.kept.append(kept);
  };
  for (size_t i = 0; i < 12; ++i) {
    samples.push_back({.advantage = static_cast<double>(i % 4) - 1.5, .group = i / 4});
    if (i % 4 != 0) samples.back().kept.vocabulary = static_cast<uint32_t>(config.vocabulary);
    const auto prompt = words(i / 4, 20);
    for (const int32_t token : prompt) add(samples.back(), token, 0, false, {});
    EXPECT_TRUE(engine.add(i, prompt, turn(i)));
  }
  for (int turns = 0; turns < 2; ++turns) {
    while (!engine.idle()) {
      auto said = engine.step();
      EXPECT_TRUE(said) << said.error().message();
      for (const auto& token : *said) {
        Sample& sample = samples[token.sequence];
        add(sample, token.token, token.logprob, true, token.kept);
        if (truncated != nullptr) *truncated += token.kept.empty() ? 0 : 1;
        EXPECT_TRUE(sample.kept.empty() || token.kept.size() < 120) << "something is cut off";
      }
    }
    for (size_t i = 0; i < samples.size() && turns == 0; ++i) {
      const auto result = words(100 + i, 4);
      for (const int32_t token : result) add(samples[i], token, 0, false, {});
      EXPECT_TRUE(engine.extend(i, result, turn(i)));
    }
  }
  for (const Sample& sample : samples) EXPECT_TRUE(sample.kept.fits(sample.tokens));
  return samples;
}

TEST(KeptTokens, of_the_engine_give_the_trainer_its_bits_in_every_family) {
  for (const auto& family : model::small_families()) {
    uint64_t truncated = 0;
    const auto samples = batch(family.config, rollout::Speculation::kOff, &truncated);
    Learner learner = learner_of(family.config);
    const auto algorithm = *algorithm_from_json(Json::parse(R"({"name": "grpo"})"));
    const auto step = learner.reinforce(samples, algorithm, 7);
    ASSERT_TRUE(step) << family.name << ": " << step.error().to_string();
    EXPECT_EQ(step->max_abs_logprob_diff, 0) << family.name;
    EXPECT_EQ(step->compared_tokens, 12 * 18) << family.name;
    EXPECT_EQ(step->kept_of, 9 * 18);
    EXPECT_EQ(step->truncated, static_cast<int64_t>(truncated));
    EXPECT_GT(step->kept, step->truncated);
    EXPECT_GT(step->grad_norm, 0);
    EXPECT_NEAR(step->ratio_mean, 1, 1e-12);
    // Now they are of the version before, which the trainer still has.
    const auto next = learner.reinforce(samples, algorithm, 8);
    ASSERT_TRUE(next) << family.name;
    EXPECT_EQ(next->max_abs_logprob_diff, 0) << family.name;
    EXPECT_GT(next->compared_tokens, 0) << family.name;
  }
}

// On a device: its own bits in engine and trainer, those of AVX2 where its kernels are exact, and one row of the head
// for each way in which a distribution was cut.
TEST(KeptTokens, on_a_device_have_the_bits_of_its_sampler_and_steps_those_of_avx2) {
  using Kernels = kernels::Device::Kernels;
  const auto config = model::small_model("llama");
  const auto algorithm = *algorithm_from_json(Json::parse(R"({"name": "grpo"})"));
  auto samples = batch(config, rollout::Speculation::kOff, nullptr, kAvx2);
  Sample other = samples[1];  // the same tokens, of which others were kept
  for (size_t i = 0, at = 0; i < other.tokens.size(); at += other.kept.counts[i++]) {
    if (other.kept.counts[i] < 2) continue;
    const auto own = other.kept.ids.begin() + static_cast<long>(at);
    other.kept.ids.erase(*own == other.tokens[i] ? own + 1 : own);
    --other.kept.counts[i];
  }
  ASSERT_TRUE(other.kept.fits(other.tokens));
  samples.insert(samples.begin() + 2, other);
  Learner on_host = learner_of(config, {}, kAvx2), on_device = learner_of(config, {}, emulated(Kernels::kExact));
  const auto expected = on_host.reinforce(samples, algorithm, 7), got = on_device.reinforce(samples, algorithm, 7);
  ASSERT_TRUE(expected && got) << got.error().to_string();
  EXPECT_EQ(got->grad_norm, expected->grad_norm);
  EXPECT_EQ(got->loss, expected->loss);
  EXPECT_EQ(got->entropy, expected->entropy);
  EXPECT_EQ(on_device.weights().digest(), on_host.weights().digest());
  for (const auto kernels : {Kernels::kExact, Kernels::kTensor}) {
    uint64_t truncated = 0;
    const auto sampled = batch(config, rollout::Speculation::kOff, &truncated, emulated(kernels));
    EXPECT_GT(truncated, 100u);
    Learner learner = learner_of(config, {}, emulated(kernels));
    const auto step = learner.reinforce(sampled, algorithm, 7);
    ASSERT_TRUE(step) << step.error().to_string();
    EXPECT_EQ(step->max_abs_logprob_diff, 0);
    EXPECT_EQ(step->compared_tokens, 12 * 18);
  }
}

TEST(KeptTokens, are_the_same_whatever_is_drafted) {
  const auto config = model::small_families().front().config;
  const auto plain = batch(config, rollout::Speculation::kOff), drafted = batch(config, rollout::Speculation::kNgram);
  ASSERT_EQ(plain.size(), drafted.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(plain[i].tokens, drafted[i].tokens);
    EXPECT_EQ(plain[i].logprobs, drafted[i].logprobs);
    EXPECT_EQ(plain[i].kept, drafted[i].kept);
  }
}

// A reference model, a critic, several updates and small passes see the same samples.
TEST(KeptTokens, go_with_a_reference_model_a_critic_and_several_updates) {
  const auto config = model::small_families().front().config;
  const auto samples = batch(config, rollout::Speculation::kOff);
  for (const char* text :
       {R"({"name": "grpo", "kl": {"estimator": "k3", "coefficient": 0.1}})", R"({"name": "ppo"})"}) {
    for (const int epochs : {1, 2}) {
      OptimizerSettings settings{.max_pass_tokens = 70};
      settings.updates = {.epochs = epochs, .minibatches = epochs};
      Learner learner = learner_of(config, settings);
      const auto algorithm = *algorithm_from_json(Json::parse(text));
      ASSERT_TRUE(learner.prepare(algorithm));
      const auto step = learner.reinforce(samples, algorithm, 7);
      ASSERT_TRUE(step) << text << ": " << step.error().to_string();
      EXPECT_EQ(step->max_abs_logprob_diff, 0) << text;
      EXPECT_EQ(step->compared_tokens, 12 * 18) << text;
    }
  }
}

// Other versions of the weights may have cut the distribution after one row elsewhere.
TEST(KeptTokens, that_differ_after_one_row_have_logprobs_and_gradients_as_if_each_were_alone) {
  const auto config = model::small_families().front().config;
  auto weights = weights_of(config, true);
  auto stream = *kernels::Stream::cpu(1);
  ASSERT_TRUE(weights.pack(stream));
  const std::vector<int32_t> tokens = {5, 17, 90, 3, 41};
  const std::span<const int32_t> view = tokens;
  const TokenTree tree = merge(std::span(&view, 1));
  const std::vector<int32_t> few = {8, 17, 60}, others = {2, 17, 33, 100};
  const std::vector<TokenPick> picks = {{0, 17}, {0, 17}, {0, 100}, {3, 41}};
  const std::vector<KeptTokens> kept = {{}, few, others, {}};
  Tape tape(config, 64);
  const auto gradient_of = [&](std::span<const TokenPick> some, std::span<const KeptTokens> of) {
    Buffers buffers(std::vector<SliceSpec>{{.name = "gradients", .elements = weights.layout().elements}});
    const auto logprobs = tape.forward(stream, weights, tree, some, nullptr, 1.25f, of);
    EXPECT_TRUE(logprobs);
    std::vector<float> entropies;
    EXPECT_TRUE(tape.backward(std::vector<float>(some.size(), 1), buffers.at("gradients"), &entropies));
    EXPECT_EQ(entropies.size(), head_row_of(some, of).back() + 1);
    const auto found = buffers.at("gradients").host<float>();
    return std::pair(*logprobs, std::vector<float>(found.begin(), found.end()));
  };
  const auto [together, whole] = gradient_of(picks, kept);
  std::vector<double> sum(whole.size(), 0);
  for (size_t i = 0; i < picks.size(); ++i) {
    const auto [alone, part] = gradient_of(std::span(picks).subspan(i, 1), std::span(kept).subspan(i, 1));
    EXPECT_EQ(alone[0], together[i]) << i;
    for (size_t at = 0; at < part.size(); ++at) sum[at] += part[at];
  }
  double error = 0, norm = 0;
  for (size_t at = 0; at < sum.size(); ++at) {
    error += std::pow(sum[at] - whole[at], 2);
    norm += sum[at] * sum[at];
  }
  EXPECT_GT(norm, 0);
  EXPECT_LT(std::sqrt(error / norm), 0.02);
  const std::vector<int32_t> outside = {17, config.vocabulary};
  EXPECT_EQ(tape.forward(stream, weights, tree, picks, nullptr, 1, std::vector<KeptTokens>(4, outside)).error().code(),
            Code::kInvalid);
}

// Finite differences along the gradient itself, of a sum of logprobs over few tokens.
TEST(KeptTokens, have_the_gradient_of_the_distribution_over_them) {
  const auto config = model::small_families().front().config;
  auto weights = weights_of(config, true);
  auto stream = *kernels::Stream::cpu(1);
  ASSERT_TRUE(weights.pack(stream));
  const std::vector<int32_t> tokens = {5, 17, 90, 3, 41};
  const std::span<const int32_t> view = tokens;
  const TokenTree tree = merge(std::span(&view, 1));
  const std::vector<int32_t> sets[] = {{8, 17, 60, 61}, {90, 91}, {0, 3, 70, 120}, {41}};
  const std::vector<KeptTokens> kept(std::begin(sets), std::end(sets));
  const std::vector<TokenPick> picks = {{0, 17}, {1, 90}, {2, 3}, {3, 41}};
  Tape tape(config, 64);
  const auto first = tape.forward(stream, weights, tree, picks, nullptr, 1.25f, kept);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->back(), 0) << "of one token alone";
  Buffers buffers(std::vector<SliceSpec>{{.name = "gradients", .elements = weights.layout().elements}});
  ASSERT_TRUE(tape.backward(std::vector<float>(4, 1), buffers.at("gradients")));
  const auto found = buffers.at("gradients").host<float>();
  double norm = 0;
  for (const float g : found) norm += double{g} * g;
  ASSERT_GT(norm, 0);
  const std::vector<kernels::bf16> before(weights.flat().begin(), weights.flat().end());
  const double step = 0.05 / std::sqrt(norm);
  double moved = 0;
  std::vector<double> at;
  for (const double sign : {1.0, -1.0}) {
    double along = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      weights.flat()[i] = kernels::to_bf16(static_cast<float>(kernels::to_float(before[i]) + sign * step * found[i]));
      along += (kernels::to_float(weights.flat()[i]) - kernels::to_float(before[i])) * found[i];
    }
    moved += sign * along;
    ASSERT_TRUE(weights.pack(stream));
    const auto logprobs = tape.forward(stream, weights, tree, picks, nullptr, 1.25f, kept);
    ASSERT_TRUE(logprobs);
    double sum = 0;
    for (const float logprob : *logprobs) sum += logprob;
    at.push_back(sum);
  }
  EXPECT_NEAR(at[0] - at[1], moved, 0.25 * moved);
}

TEST(KeptTokens, are_not_recorded_where_something_else_cuts_off_tokens) {
  const auto config = model::small_families().front().config;
  auto weights = std::make_shared<model::Weights>(weights_of(config, false));
  auto stream = *kernels::Stream::cpu(1);
  ASSERT_TRUE(weights->pack(stream));
  auto engine = std::move(*rollout::Engine::create(weights, 0, std::move(stream), {.slots = 1, .max_tokens = 64}));
  const auto refused = [&](rollout::TurnRequest turn) {
    turn.record_kept = true;
    return engine.add(1, {1, 2}, turn).code() == Code::kInvalid;
  };
  EXPECT_TRUE(refused({.sampling = {.temperature = 0}}));
  EXPECT_TRUE(refused({.min_new_tokens = 1}));
  EXPECT_TRUE(refused({.bias = {{.token = 1, .add = 1}}}));
  EXPECT_TRUE(refused({.presence_penalty = 1}));
  EXPECT_FALSE(refused({.sampling = {.top_k = 3}}));
}

}  // namespace
}  // namespace tandem::trainer::kept_tests
