// Learning by the experts that the sampler's tokens went to: the same bits where the trainer would choose them itself,
// and ratios near 1 where it would not.
#include "model/routes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "base/segments.h"
#include "model/executor.h"
#include "tests/model/small_families.h"
#include "trainer/learn/algorithm_config.h"
#include "trainer/learn/learner.h"
#include "trainer/learn/routed_views.h"

namespace tandem::trainer::route_tests {
namespace {

model::ModelConfig mixture(std::string_view name = "mixture") {
  for (const auto& family : model::small_families()) {
    if (family.name == name) return family.config;
  }
  ADD_FAILURE() << name;
  return {};
}

// Steep enough that tokens differ in what they choose.
model::Weights weights_of(uint64_t seed, const model::ModelConfig& config, bool learns) {
  auto weights = std::move(*model::Weights::create(config, learns));
  model::randomise(weights, seed);
  for (auto& value : weights.flat()) value = kernels::to_bf16(kernels::to_float(value) * 3);
  return weights;
}

// The same with each number moved a little, as steps of the optimizer do.
void move(model::Weights& weights, double by) {
  Random random(5);
  for (auto& value : weights.flat())
    value = kernels::to_bf16(kernels::to_float(value) + static_cast<float>(by * random.normal()));
}

Learner learner_of(const model::ModelConfig& config, double moved = 0, OptimizerSettings settings = {}) {
  settings.learning_rate = {.peak = 1e-4};
  if (settings.max_pass_tokens == OptimizerSettings().max_pass_tokens) settings.max_pass_tokens = 150;
  auto weights = weights_of(1, config, true);
  if (moved > 0) move(weights, moved);
  return std::move(*Learner::create(std::move(weights), *kernels::Stream::cpu(2), settings));
}

// A group that samples of the weights before, each with what an executor says of its tokens and of their experts.
class Sampler {
 public:
  explicit Sampler(const model::ModelConfig& config) : config_(config) {
    auto weights = std::make_shared<model::Weights>(weights_of(1, config, false));
    auto stream = *kernels::Stream::cpu(1);
    EXPECT_TRUE(weights->pack(stream));
    executor_ = std::move(*model::make_cpu_executor(weights, std::move(stream), {.pages = 8, .max_positions = 256}));
  }

  Sample sample(std::vector<int32_t> tokens, size_t prompt, double advantage, uint64_t group,
                std::vector<uint32_t> later_segments = {}) {
    Sample sample{.tokens = std::move(tokens),
                  .advantage = advantage,
                  .group = group,
                  .later_segments = std::move(later_segments)};
    const size_t count = sample.tokens.size();
    sample.trained.assign(count, 0);
    sample.logprobs.assign(count, 0);
    sample.versions.assign(count, 7);
    sample.routes.shape = model::route_shape(config_);
    sample.routes.resize(count);
    size_t begin = 0;
    for (const auto segment : split_at(std::span<const int32_t>(sample.tokens), sample.later_segments)) {
      std::vector<int> pages(8);
      for (int i = 0; i < 8; ++i) pages[static_cast<size_t>(i)] = i;
      EXPECT_TRUE(executor_->clear(pages));
      model::Plan plan;
      plan.batch.add(segment, 0, pages);
      plan.routes = true;
      for (size_t i = 0; i + 1 < segment.size(); ++i) plan.picks.push_back({static_cast<int32_t>(i), segment[i + 1]});
      const auto answer = *executor_->collect(*executor_->submit(std::move(plan)));
      const size_t width = sample.routes.shape.row_bytes();
      sample.routes.record(begin, std::span(answer.routes).first((segment.size() - 1) * width));
      for (size_t i = prompt; i < segment.size(); ++i) {
        sample.trained[begin + i] = 1;
        sample.logprobs[begin + i] = answer.picks[i - 1];
      }
      begin += segment.size();
    }
    return sample;
  }

  // Groups whose samples share prompts and first words; one has two segments, one ends where another goes on.
  std::vector<Sample> batch() {
    Random random(3);
    const auto words = [&](size_t count) {
      std::vector<int32_t> all(count);
      for (auto& token : all) token = static_cast<int32_t>(random.below(150));
      return all;
    };
    std::vector<Sample> samples;
    for (uint64_t group = 0; group < 3; ++group) {
      const auto prompt = words(20), beginning = words(6);
      for (int i = 0; i < 4; ++i) {
        auto tokens = prompt;
        if (i < 3) tokens.insert(tokens.end(), beginning.begin(), beginning.end());
        if (i != 1) {
          const auto rest = words(15);
          tokens.insert(tokens.end(), rest.begin(), rest.end());
        }
        std::vector<uint32_t> later;
        if (i == 2) {
          later.push_back(static_cast<uint32_t>(tokens.size()));
          tokens.insert(tokens.end(), prompt.begin(), prompt.end());
          const auto rest = words(9);
          tokens.insert(tokens.end(), rest.begin(), rest.end());
        }
        samples.push_back(sample(std::move(tokens), prompt.size(), i - 1.5, group, later));
      }
    }
    return samples;
  }

 private:
  model::ModelConfig config_;
  std::unique_ptr<model::Executor> executor_;
};

std::vector<Sample> without_routes(std::vector<Sample> samples) {
  for (Sample& sample : samples) sample.routes = {};
  return samples;
}

void expect_same_weights(const Learner& a, const Learner& b) {
  const auto left = a.weights().wire(), right = b.weights().wire();
  EXPECT_TRUE(std::ranges::equal(left, right));
}

TEST(Routes, that_the_trainer_would_choose_itself_change_no_bit) {
  for (const char* name : {"mixture", "latent_attention"}) {
    const auto config = mixture(name);
    Sampler sampler(config);
    const auto samples = sampler.batch();
    for (const int epochs : {1, 2}) {
      OptimizerSettings settings;
      settings.updates = {.epochs = epochs, .minibatches = epochs};
      Learner with = learner_of(config, 0, settings), without = learner_of(config, 0, settings);
      const auto algorithm = *algorithm_from_json(Json::parse(R"({"name": "grpo"})"));
      const auto step = with.reinforce(samples, algorithm, 7);
      const auto plain = without.reinforce(without_routes(samples), algorithm, 7);
      ASSERT_TRUE(step) << step.error().to_string();
      ASSERT_TRUE(plain) << plain.error().to_string();
      EXPECT_EQ(step->max_abs_logprob_diff, 0);
      EXPECT_EQ(step->compared_tokens, plain->compared_tokens);
      EXPECT_EQ(step->tree_tokens, plain->tree_tokens) << "prefixes are shared as without";
      EXPECT_GT(step->routes_taken, 0);
      EXPECT_EQ(step->routes_changed, 0);
      EXPECT_EQ(plain->routes_taken, 0);
      // The first update of the two is on policy; behind it weights have moved, and routes may differ.
      if (epochs == 1) {
        EXPECT_EQ(step->loss, plain->loss);
        EXPECT_EQ(step->grad_norm, plain->grad_norm);
        expect_same_weights(with, without);
      }
    }
  }
}

TEST(Routes, keep_ratios_near_one_where_weights_have_moved) {
  constexpr double kMoved = 0.001;  // of weights of about 0.06
  for (const char* name : {"mixture", "latent_attention"}) {
    const auto config = mixture(name);
    Sampler sampler(config);
    const auto samples = sampler.batch();
    OptimizerSettings settings;
    settings.updates = {.epochs = 2, .minibatches = 1};
    Learner with = learner_of(config, kMoved, settings), without = learner_of(config, kMoved, settings);
    const auto algorithm = *algorithm_from_json(Json::parse(R"({"name": "grpo"})"));
    const auto step = with.reinforce(samples, algorithm, 8);
    const auto plain = without.reinforce(without_routes(samples), algorithm, 8);
    ASSERT_TRUE(step && plain);
    EXPECT_GT(step->routes_changed, 0) << name;
    EXPECT_LT(step->routes_changed, step->routes_taken / 4) << name;
    // The sampler's logprobs against the trainer's, before the first update.
    EXPECT_LT(step->mismatch_kl, plain->mismatch_kl / 2) << name;
    RecordProperty(std::string(name) + "_with", std::to_string(step->mismatch_kl));
    RecordProperty(std::string(name) + "_without", std::to_string(plain->mismatch_kl));
  }
}

// Equal tokens with different routes are different rows.
TEST(Routes, of_another_version_are_rows_of_their_own) {
  const auto config = mixture();
  Sampler sampler(config);
  auto samples = sampler.batch();
  Sample other = samples[0];
  other.group = samples[0].group;
  auto row = std::vector<uint8_t>(other.routes.row(4).begin(), other.routes.row(4).end());
  for (uint32_t expert = 0; expert < 6; ++expert) {
    if (row[0] != expert && row[1] != expert) {
      other.routes.ids[4 * other.routes.shape.row_bytes()] = static_cast<uint8_t>(expert);
      break;
    }
  }
  const Sample* const both[] = {&samples[0], &samples[0], &other};
  const auto views = RoutedViews::create(both, model::route_shape(config));
  ASSERT_TRUE(views);
  std::vector<std::span<const int32_t>> segments;
  for (size_t i = 0; i < 3; ++i) {
    for (const auto segment : views->segments(i)) segments.push_back(segment);
  }
  TokenTree tree = merge(segments);
  const TreeRoutes routes = views->translate(tree);
  const size_t length = samples[0].tokens.size();
  EXPECT_EQ(tree.tokens.size(), 4 + 2 * (length - 4));
  // Row by row each sample has its tokens and its own routes.
  for (size_t s = 0; s < 3; ++s) {
    const auto rows = tree.rows_of(static_cast<int>(s), length);
    const Sample& sample = *both[s];
    for (size_t at = 0; at < length; ++at) {
      EXPECT_EQ(tree.tokens[static_cast<size_t>(rows[at])], sample.tokens[at]);
      for (size_t layer = 0; layer < 2; ++layer) {
        const auto ids = routes.layer(layer).subspan(static_cast<size_t>(rows[at]) * 2, 2);
        if (at + 1 == length) {
          EXPECT_EQ(ids[0], -1) << "nothing has computed it";
          continue;
        }
        for (size_t rank = 0; rank < 2; ++rank)
          EXPECT_EQ(ids[rank], static_cast<int32_t>(sample.routes.shape.id(sample.routes.row(at), layer * 2 + rank)));
      }
    }
  }
}

TEST(Routes, of_another_model_are_refused_by_name) {
  const auto config = mixture();
  Sampler sampler(config);
  auto samples = sampler.batch();
  samples[2].routes.shape.experts = 7;
  Learner learner = learner_of(config);
  const auto step = learner.reinforce(samples, *algorithm_from_json(Json::parse(R"({"name": "grpo"})")), 7);
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().code(), Code::kInvalid);
  EXPECT_NE(step.error().message().find("2 of 7 experts"), std::string::npos) << step.error().message();
}

// Finite differences, at experts that no router would choose.
TEST(Routes, have_the_gradient_of_the_experts_that_are_taken) {
  const auto config = mixture();
  auto weights = weights_of(1, config, true);
  auto stream = *kernels::Stream::cpu(1);
  ASSERT_TRUE(weights.pack(stream));
  const std::vector<int32_t> tokens = {5, 17, 90, 3, 41};
  const std::span<const int32_t> view = tokens;
  const TokenTree tree = merge(std::span(&view, 1));
  TreeRoutes routes{.shape = model::route_shape(config), .ids = {}};
  for (int layer = 0; layer < 2; ++layer) {
    for (int row = 0; row < 5; ++row) {
      const int first = row == 3 ? -1 : (row + layer) % 6;
      routes.ids.push_back(first);
      routes.ids.push_back(first < 0 ? 0 : (row + layer + 2) % 6);
    }
  }
  const std::vector<TokenPick> picks = {{0, 17}, {1, 90}, {2, 3}, {3, 41}};
  Tape tape(config, 64);
  ASSERT_TRUE(tape.forward(stream, weights, tree, picks, &routes));
  EXPECT_EQ(tape.given_routes().given, 8);
  EXPECT_GT(tape.given_routes().changed, 0);
  Buffers buffers(std::vector<SliceSpec>{{.name = "gradients", .elements = weights.layout().elements}});
  ASSERT_TRUE(tape.backward(std::vector<float>(4, 1), buffers.at("gradients")));
  const auto found = buffers.at("gradients").host<float>();
  const auto value = [&](const TreeRoutes* with) {
    double sum = 0;
    const auto logprobs = tape.forward(stream, weights, tree, picks, with);
    EXPECT_TRUE(logprobs);
    for (const float logprob : *logprobs) sum += logprob;
    return sum;
  };
  // Along the router's own gradient the sum rises by its norm squared.
  const int router = weights.layout().layers[0].router;
  const auto& parameter = weights.layout().parameters[static_cast<size_t>(router)];
  double norm = 0;
  for (size_t i = 0; i < parameter.elements(); ++i) norm += std::pow(found[parameter.offset + i], 2);
  ASSERT_GT(norm, 0) << "the router learns";
  const std::vector<kernels::bf16> before(weights.flat().begin(), weights.flat().end());
  const double step = 0.02 / std::sqrt(norm);
  double moved = 0;
  std::vector<double> at;
  for (const double sign : {1.0, -1.0}) {
    double along = 0;
    for (size_t i = parameter.offset; i < parameter.offset + parameter.elements(); ++i) {
      weights.flat()[i] = kernels::to_bf16(static_cast<float>(kernels::to_float(before[i]) + sign * step * found[i]));
      along += (kernels::to_float(weights.flat()[i]) - kernels::to_float(before[i])) * found[i];
    }
    moved += sign * along;
    ASSERT_TRUE(weights.pack(stream));
    at.push_back(value(&routes));
  }
  EXPECT_NEAR(at[0] - at[1], moved, 0.25 * moved);
}

}  // namespace
}  // namespace tandem::trainer::route_tests
