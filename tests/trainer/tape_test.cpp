#include "trainer/learn/tape.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "tests/model/engine_logprobs.h"

namespace tandem::trainer {
namespace {

model::ModelConfig tape_tiny_config() {
  model::ModelConfig config;
  config.family = "llama";
  config.layers = 2;
  config.width = 96;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_size = 64;
  config.mlp_width = 160;
  config.vocabulary = 300;
  config.max_positions = 512;
  config.tied_embeddings = true;
  config.dtype = model::DType::kBF16;
  return config;
}

model::Weights tiny_weights(kernels::Stream& stream, model::WeightFormat format = model::WeightFormat::kBf16) {
  auto weights = std::move(*model::Weights::create(tape_tiny_config(), true, format));
  model::randomise(weights, 1);
  for (auto& value : weights.flat()) value = kernels::to_bf16(kernels::to_float(value) * 4);  // livelier than at birth
  EXPECT_TRUE(weights.pack(stream));
  return weights;
}

std::vector<std::vector<int32_t>> group_of_samples() {
  Random random(5);
  std::vector<int32_t> prompt(100);
  for (auto& token : prompt) token = static_cast<int32_t>(random.below(300));
  std::vector<std::vector<int32_t>> samples(5, prompt);
  for (size_t i = 0; i < samples.size(); ++i) {
    const size_t length = 20 + i * 17;
    for (size_t k = 0; k < length; ++k)
      samples[i].push_back(i < 2 && k < 10 ? 7 : static_cast<int32_t>(random.below(300)));
  }
  samples.push_back(samples[0]);  // twice the same
  return samples;
}

std::vector<std::span<const int32_t>> views(const std::vector<std::vector<int32_t>>& samples) {
  return {samples.begin(), samples.end()};
}

TEST(TokenTree, holds_every_sample_and_shares_what_they_share) {
  const auto samples = group_of_samples();
  const TokenTree tree = merge(views(samples));
  size_t naive = 0;
  for (size_t s = 0; s < samples.size(); ++s) {
    naive += samples[s].size();
    const auto rows = tree.rows_of(static_cast<int>(s), samples[s].size());
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(tree.tokens[rows[i]], samples[s][i]);
      ASSERT_EQ(tree.positions[rows[i]], static_cast<int32_t>(i));
    }
  }
  EXPECT_EQ(tree.nodes[0].rows, 100);
  EXPECT_LT(tree.tokens.size(), naive / 2);
}

class TapeFormats : public testing::TestWithParam<model::WeightFormat> {};
INSTANTIATE_TEST_SUITE_P(Formats, TapeFormats,
                         testing::Values(model::WeightFormat::kBf16, model::WeightFormat::kFp8,
                                         model::WeightFormat::kMxfp8),
                         [](const auto& info) { return model::to_string(info.param); });

TEST_P(TapeFormats, a_tree_of_samples_gives_each_the_bits_that_the_engine_gives_it_alone) {
  auto stream = std::move(*kernels::Stream::cpu(2));
  const auto weights = tiny_weights(stream, GetParam());
  const auto samples = group_of_samples();
  const TokenTree tree = merge(views(samples));
  std::vector<std::pair<TokenPick, std::pair<size_t, size_t>>> wanted;
  for (size_t s = 0; s < samples.size(); ++s) {
    const auto rows = tree.rows_of(static_cast<int>(s), samples[s].size());
    for (size_t i = 0; i + 1 < samples[s].size(); ++i) wanted.push_back({{rows[i], samples[s][i + 1]}, {s, i}});
  }
  std::stable_sort(wanted.begin(), wanted.end(),
                   [](const auto& a, const auto& b) { return a.first.row < b.first.row; });
  std::vector<TokenPick> picks;
  for (const auto& [pick, place] : wanted) picks.push_back(pick);
  Tape tape(weights.config(), 512);
  const auto logprobs = *tape.forward(stream, weights, tree, picks);
  for (const int chunk : {1, 37, 512}) {
    std::vector<std::vector<float>> alone;
    for (const auto& sample : samples) alone.push_back(model::engine_logprobs(stream, weights, sample, chunk));
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto [s, position] = wanted[i].second;
      ASSERT_EQ(logprobs[i], alone[s][position]) << "sample " << s << " position " << position << " chunk " << chunk;
    }
  }
}

// Gradients of a tree equal, to rounding, the sum of the gradients of its samples one by one; and repeat bit by bit.
TEST(Tape, the_gradient_of_a_tree_is_the_sum_over_its_samples_and_repeats_bit_by_bit) {
  auto stream = std::move(*kernels::Stream::cpu(2)), single = std::move(*kernels::Stream::cpu(1));
  const auto weights = tiny_weights(stream);
  const auto samples = group_of_samples();
  const size_t elements = weights.layout().elements;
  const auto gradient = [&](kernels::Stream& cpu, std::span<const std::span<const int32_t>> chosen) {
    const TokenTree tree = merge(chosen);
    std::vector<std::pair<TokenPick, float>> wanted;
    for (size_t s = 0; s < chosen.size(); ++s) {
      const auto rows = tree.rows_of(static_cast<int>(s), chosen[s].size());
      const float weight = 0.1f * static_cast<float>(chosen[s].size() % 7) - 0.25f;
      for (size_t i = 100; i + 1 < chosen[s].size(); ++i) wanted.push_back({{rows[i], chosen[s][i + 1]}, weight});
    }
    std::stable_sort(wanted.begin(), wanted.end(),
                     [](const auto& a, const auto& b) { return a.first.row < b.first.row; });
    std::vector<TokenPick> picks;
    std::vector<float> gradients;
    for (const auto& [pick, gradient] : wanted) picks.push_back(pick), gradients.push_back(gradient);
    std::vector<float> grads(elements, 0);
    Tape tape(weights.config(), 512);
    EXPECT_TRUE(tape.forward(cpu, weights, tree, picks));
    EXPECT_TRUE(tape.backward(gradients, model::slice_of("gradients", std::span(grads))));
    return grads;
  };
  const auto all = views(samples);
  const auto whole = gradient(stream, all);
  EXPECT_EQ(whole, gradient(single, all));
  std::vector<double> summed(elements, 0);
  for (const auto& sample : all) {
    const auto part = gradient(stream, std::span(&sample, 1));
    for (size_t i = 0; i < elements; ++i) summed[i] += part[i];
  }
  double error = 0, norm = 0;
  for (size_t i = 0; i < elements; ++i) error += std::pow(whole[i] - summed[i], 2), norm += summed[i] * summed[i];
  EXPECT_LT(std::sqrt(error / norm), 0.02);
}

// The directional derivative of the loss along the gradient, by central differences over real (bf16) weights.
TEST(Tape, the_gradient_points_where_the_loss_grows) {
  auto stream = std::move(*kernels::Stream::cpu(2));
  auto weights = tiny_weights(stream);
  const auto samples = group_of_samples();
  const auto all = views(samples);
  const TokenTree tree = merge(all);
  std::vector<TokenPick> picks;
  for (int row = 0; row + 1 < tree.nodes[0].rows; ++row) picks.push_back({row, tree.tokens[row + 1]});
  Tape tape(weights.config(), 512);
  const auto loss = [&]() {
    double total = 0;
    const auto logprobs = *tape.forward(stream, weights, tree, picks);
    for (const float logprob : logprobs) total += logprob;
    return total;
  };
  loss();
  std::vector<float> grads(weights.layout().elements, 0);
  ASSERT_TRUE(tape.backward(std::vector<float>(picks.size(), 1.0f), model::slice_of("gradients", std::span(grads))));
  const std::vector<kernels::bf16> start(weights.flat().begin(), weights.flat().end());
  double norm = 0;
  for (const float g : grads) norm += static_cast<double>(g) * g;
  // Steps whose first-order effect is above the rounding of the loss and whose third-order effect is below the first;
  // several, because rounding alone moves the effect of each by a tenth.
  double expected = 0, measured = 0;
  for (const double step : {16, 20, 24, 28, 32, 36, 40, -16, -20, -24, -28, -32, -36, -40}) {
    const double sign = step > 0 ? 1 : -1;
    for (size_t i = 0; i < start.size(); ++i) {
      weights.flat()[i] = kernels::to_bf16(static_cast<float>(kernels::to_float(start[i]) + step / norm * grads[i]));
      expected +=
          sign * (kernels::to_float(weights.flat()[i]) - static_cast<double>(kernels::to_float(start[i]))) * grads[i];
    }
    ASSERT_TRUE(weights.pack(stream));
    measured += sign * loss();
  }
  EXPECT_NEAR(measured / expected, 1, 0.2) << measured << " against " << expected;
}

// The same of what else reads the states that the head reads, such as a critic.
TEST(Tape, the_gradient_of_the_states_points_where_they_grow) {
  auto stream = std::move(*kernels::Stream::cpu(2));
  auto weights = tiny_weights(stream);
  const auto samples = group_of_samples();
  const auto all = views(samples);
  const TokenTree tree = merge(all);
  std::vector<TokenPick> picks;
  for (int row = 0; row + 1 < tree.nodes[0].rows; ++row) picks.push_back({row, tree.tokens[row + 1]});
  Tape tape(weights.config(), 512);
  Random random(5);
  std::vector<float> wanted(picks.size() * static_cast<size_t>(weights.config().width));
  for (float& number : wanted) number = static_cast<float>(random.normal());
  const auto sum = [&]() {
    EXPECT_TRUE(tape.forward(stream, weights, tree, picks));
    const auto states = *tape.states();
    EXPECT_EQ(states.size(), wanted.size());
    double total = 0;
    for (size_t i = 0; i < states.size(); ++i) total += static_cast<double>(wanted[i]) * states[i];
    return total;
  };
  sum();
  std::vector<float> grads(weights.layout().elements, 0);
  ASSERT_TRUE(tape.backward(std::vector<float>(picks.size(), 0.0f), model::slice_of("gradients", std::span(grads)),
                            nullptr, {}, wanted));
  const std::vector<kernels::bf16> start(weights.flat().begin(), weights.flat().end());
  double norm = 0;
  for (const float g : grads) norm += static_cast<double>(g) * g;
  double expected = 0, measured = 0;
  for (const double step : {320, 400, 480, 560, 640, 720, 800, -320, -400, -480, -560, -640, -720, -800}) {
    const double sign = step > 0 ? 1 : -1;
    for (size_t i = 0; i < start.size(); ++i) {
      weights.flat()[i] = kernels::to_bf16(static_cast<float>(kernels::to_float(start[i]) + step / norm * grads[i]));
      expected +=
          sign * (kernels::to_float(weights.flat()[i]) - static_cast<double>(kernels::to_float(start[i]))) * grads[i];
    }
    ASSERT_TRUE(weights.pack(stream));
    measured += sign * sum();
  }
  EXPECT_NEAR(measured / expected, 1, 0.2) << measured << " against " << expected;
}

TEST(TreeRows, are_those_of_the_merged_tree_after_every_sample) {
  Random random(11);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::vector<int32_t>> samples(1 + random.below(12));
    for (auto& sample : samples) {
      sample.resize(1 + random.below(10));
      for (auto& token : sample) token = static_cast<int32_t>(random.below(3));
    }
    std::vector<std::span<const int32_t>> views;
    TreeRows size;
    for (const auto& sample : samples) {
      views.push_back(sample);
      const int expected = static_cast<int>(merge(views).tokens.size());
      EXPECT_EQ(size.rows_with(sample), expected);
      size.add(sample);
      EXPECT_EQ(size.rows(), expected);
    }
  }
}

}  // namespace
}  // namespace tandem::trainer
