// Demonstrations beside reinforcement: their file, their order, and what they add to a step.
#include "trainer/learn/demonstrations.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/digest.h"
#include "base/file.h"
#include "base/random.h"
#include "tests/envs/scratch.h"
#include "trainer/learn/algorithm_config.h"

namespace tandem::trainer {
namespace {

Sample demonstration(std::vector<int32_t> tokens, std::vector<uint8_t> trained) {
  return {.tokens = std::move(tokens), .trained = std::move(trained), .part = kDemonstrationPart};
}

std::vector<Sample> three() {
  return {demonstration({1, 2, 3, 4}, {0, 1, 1, 0}), demonstration({5, 6}, {0, 1}),
          demonstration({7, 8, 9}, {0, 0, 1})};
}

TEST(Demonstrations, come_back_from_their_file) {
  envs::Scratch scratch;
  const fs::path path = scratch.path / kDemonstrationsFile;
  ASSERT_TRUE(write_demonstrations(path, three()));
  const auto read = Demonstrations::read(path, 10, 4);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->size(), 3u);
  std::set<std::vector<int32_t>> seen;
  for (const Sample& sample : read->of_step(1, 3, 1)) {
    seen.insert(sample.tokens);
    EXPECT_EQ(sample.part, kDemonstrationPart);
    EXPECT_TRUE(sample.logprobs.empty());
    for (const Sample& given : three()) {
      if (given.tokens == sample.tokens) {
        EXPECT_EQ(sample.trained, given.trained);
      }
    }
  }
  EXPECT_EQ(seen.size(), 3u);
}

TEST(Demonstrations, are_drawn_again_and_again_each_time_in_an_order_of_its_own) {
  envs::Scratch scratch;
  const fs::path path = scratch.path / kDemonstrationsFile;
  std::vector<Sample> many;
  for (int32_t i = 0; i < 10; ++i) many.push_back(demonstration({i, i}, {0, 1}));
  ASSERT_TRUE(write_demonstrations(path, many));
  const auto read = *Demonstrations::read(path, 10, 4);
  std::vector<int32_t> firsts;
  for (uint64_t step = 1; step <= 10; ++step) {  // three epochs and a bit, over ends of epochs
    for (const Sample& sample : read.of_step(step, 3, 7)) firsts.push_back(sample.tokens[0]);
    EXPECT_EQ(read.of_step(step, 3, 7)[0].tokens, read.of_step(step, 3, 7)[0].tokens);
  }
  std::set<std::vector<int32_t>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int32_t> of_epoch(firsts.begin() + 10 * epoch, firsts.begin() + 10 * epoch + 10);
    orders.insert(of_epoch);
    std::ranges::sort(of_epoch);
    EXPECT_EQ(of_epoch, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  }
  EXPECT_EQ(orders.size(), 3u);
  EXPECT_EQ(read.of_step(1, 25, 7).size(), 25u) << "more than there are: some twice";
}

TEST(Demonstrations, that_are_damaged_are_named_by_line) {
  envs::Scratch scratch;
  const fs::path path = scratch.path / kDemonstrationsFile;
  const auto said = [&](const std::string& text) {
    EXPECT_TRUE(write_file(path, text));
    const auto read = Demonstrations::read(path, 10, 4);
    return read ? std::string("read") : read.error().to_string();
  };
  const std::string head = "{\"format\":1,\"samples\":1}\n";
  const std::string line = "{\"tokens\":[1,2],\"trained\":[[1,2]]}\n";
  const std::string whole = fmt::format("{{\"format\":1,\"samples\":1,\"digest\":\"{}\"}}\n", digest_of(line).hex());
  EXPECT_EQ(said(whole + line), "read");
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::string>>{
           {"", ":1: is empty"},
           {"[]\n", ":1: its format is not 1"},
           {"{\"format\":2,\"samples\":1}\n", ":1: its format is not 1"},
           {head, ":1: has 0 samples"},
           {head + line, ":1: its samples are not those that were written"},
           {whole + "{\"tokens\":[1,3],\"trained\":[[1,2]]}\n", ":1: its samples are not those that were written"},
           {whole + "{\"tokens\":[1,2],\"trained\":[[0,2]]}\n", ":1: its samples are not those that were written"},
           {head + "{\"tokens\":[1,2]", ":2: "},
           {head + "{\"tokens\":[1,12],\"trained\":[]}\n", ":2: a token that is not one of 10"},
           {head + "{\"tokens\":[1,-1],\"trained\":[]}\n", ":2: a token that is not one of 10"},
           {head + "{\"tokens\":[],\"trained\":[]}\n", ":2: 0 tokens, not 1 to 4"},
           {head + "{\"tokens\":[1,1,1,1,1],\"trained\":[]}\n", ":2: 5 tokens, not 1 to 4"},
           {head + "{\"tokens\":[1,2],\"trained\":[[1,3]]}\n", ":2: trained tokens 1 to 3 of 2"},
           {head + "{\"tokens\":[1,2],\"trained\":[[1,1]]}\n", ":2: trained tokens 1 to 1 of 2"},
           {head + "{\"tokens\":[1,2],\"trained\":[[-1,1]]}\n", ":2: trained tokens"},
           {head + "{\"tokens\":\"12\",\"trained\":[]}\n", ":2: "},
           {head + "{\"tokens\":[1,2],\"trained\":[]}\n{\"tokens\":[1,2],\"trained\":[]}\n", ":1: has 2 samples"}})
    EXPECT_THAT(said(text), testing::HasSubstr(words)) << text;
  fs::remove(path);
  EXPECT_FALSE(Demonstrations::read(path, 10, 4));
}

class LearnerDemonstrations : public testing::Test {
 protected:
  static constexpr uint64_t kVersion = 7;

  static Learner learner(const BatchUpdates& updates = {}) {
    model::ModelConfig config;
    config.family = "llama";
    config.layers = 1;
    config.width = 64;
    config.heads = 1;
    config.kv_heads = 1;
    config.head_size = 64;
    config.mlp_width = 64;
    config.vocabulary = 50;
    config.max_positions = 64;
    config.tied_embeddings = true;
    config.dtype = model::DType::kBF16;
    auto weights = std::move(*model::Weights::create(config, true));
    model::randomise(weights, 1);
    for (auto& value : weights.flat()) value = kernels::to_bf16(kernels::to_float(value) * 4);
    return std::move(*Learner::create(std::move(weights), std::move(*kernels::Stream::cpu(1)),
                                      {.learning_rate = {.peak = 3e-3}, .max_pass_tokens = 40, .updates = updates}));
  }

  static std::vector<Sample> random_samples(bool demonstrations) {
    Random random(demonstrations ? 5 : 3);
    std::vector<Sample> samples;
    for (uint64_t i = 0; i < 6; ++i) {
      Sample sample{.advantage = demonstrations ? 0 : random.normal()};
      if (!demonstrations) sample.group = i / 2;
      for (int at = 0; at < 14; ++at) sample.tokens.push_back(static_cast<int32_t>(random.below(50)));
      for (size_t at = 0; at < sample.tokens.size(); ++at) sample.trained.push_back(at >= 5 + i / 2 && at != 9);
      if (demonstrations) {
        sample.part = kDemonstrationPart;
      } else {
        sample.versions.assign(sample.tokens.size(), kVersion);
        sample.logprobs.assign(sample.tokens.size(), -4);
      }
      samples.push_back(std::move(sample));
    }
    return samples;
  }

  static std::vector<Sample> both() {
    auto all = random_samples(false);
    for (Sample& sample : random_samples(true)) all.push_back(std::move(sample));
    return all;
  }

  static Algorithm algorithm_of(const char* json, double coefficient) {
    Algorithm algorithm = *algorithm_from_json(Json::parse(json));
    algorithm.demonstrations = {.samples = 6, .coefficient = coefficient};
    return algorithm;
  }
};

// By samples alone, of the whole batch, with a critic, and with several updates.
TEST_F(LearnerDemonstrations, add_their_likelihood_to_the_loss_and_change_nothing_else_that_is_measured) {
  const double likelihood = *learner().evaluate(random_samples(true));
  for (const BatchUpdates& updates : {BatchUpdates{}, BatchUpdates{.epochs = 2, .minibatches = 1}}) {
    for (const char* text : {R"({"name": "grpo"})", R"({"name": "reinforce++"})",
                             R"({"name": "ppo", "value": {"trunk": true}})", R"({"name": "kl_cov"})"}) {
      const Algorithm algorithm = algorithm_of(text, 0.5);
      Learner with = learner(updates), without = learner(updates);
      ASSERT_TRUE(with.prepare(algorithm));
      ASSERT_TRUE(without.prepare(algorithm));
      const auto step = with.reinforce(both(), algorithm, kVersion),
                 expected = without.reinforce(random_samples(false), algorithm, kVersion);
      ASSERT_TRUE(step && expected) << text;
      EXPECT_EQ(step->max_abs_logprob_diff, expected->max_abs_logprob_diff);
      EXPECT_EQ(step->compared_tokens, expected->compared_tokens);
      if (updates.epochs > 1) {  // its numbers are means over two updates
        ASSERT_EQ(step->updates.size(), 2u);
        EXPECT_NEAR(step->updates[0].loss, expected->updates[0].loss + 0.5 * likelihood, 1e-9) << text;
        EXPECT_EQ(step->updates[0].tokens, expected->updates[0].tokens);
        EXPECT_LT(step->of_loss.at("demonstration_loss"), likelihood) << "it was learned from in between";
        continue;
      }
      EXPECT_NEAR(step->of_loss.at("demonstration_loss"), likelihood, 1e-9) << text;
      EXPECT_NEAR(step->loss, expected->loss + 0.5 * likelihood, 1e-9) << text;
      EXPECT_EQ(step->entropy, expected->entropy) << text;
      EXPECT_EQ(step->ratio_mean, expected->ratio_mean) << text;
      EXPECT_FALSE(expected->of_loss.contains("demonstration_loss"));
    }
  }
}

// Reinforcement without any advantage leaves the term alone: the step is that of tandem sft.
TEST_F(LearnerDemonstrations, alone_are_learned_as_by_imitation) {
  auto samples = both();
  for (Sample& sample : samples) sample.advantage = 0;
  Learner reinforced = learner(), imitated = learner();
  ASSERT_TRUE(reinforced.reinforce(samples, algorithm_of(R"({"name": "dr_grpo"})", 1), kVersion));
  ASSERT_TRUE(imitated.imitate(random_samples(true)));
  const auto a = reinforced.weights().flat(), b = imitated.weights().flat();
  ASSERT_EQ(a.size(), b.size());
  size_t equal = 0;
  for (size_t i = 0; i < a.size(); ++i) equal += kernels::to_float(a[i]) == kernels::to_float(b[i]);
  // Slots are dealt by the whole batch, so sums are in another order.
  EXPECT_GT(static_cast<double>(equal) / static_cast<double>(a.size()), 0.99);
}

TEST_F(LearnerDemonstrations, are_dealt_to_the_minibatches) {
  Learner several = learner({.epochs = 1, .minibatches = 3, .seed = 4});
  const auto step = several.reinforce(both(), algorithm_of(R"({"name": "grpo"})", 1), kVersion);
  ASSERT_TRUE(step) << step.error().to_string();
  EXPECT_EQ(step->updates.size(), 3u);
  EXPECT_GT(step->of_loss.at("demonstration_loss"), 0);
}

// The mean is over the updates that had some: not half of it where one of two minibatches had them.
TEST_F(LearnerDemonstrations, that_some_minibatches_lack_are_measured_where_they_are) {
  auto samples = random_samples(false);
  samples.push_back(random_samples(true).front());
  const double likelihood = *learner().evaluate(std::span(samples).last(1));
  Learner several = learner({.epochs = 1, .minibatches = 3, .seed = 4});
  const auto step = several.reinforce(samples, algorithm_of(R"({"name": "grpo"})", 1), kVersion);
  ASSERT_TRUE(step) << step.error().to_string();
  EXPECT_EQ(step->updates.size(), 3u);
  EXPECT_NEAR(step->of_loss.at("demonstration_loss"), likelihood, 1e-9) << "the first minibatch has it";
}

}  // namespace
}  // namespace tandem::trainer
