// Steps of several updates: epochs of minibatches over one batch.
#include "trainer/learn/batch_updates.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/random.h"
#include "trainer/learn/algorithm_config.h"
#include "trainer/learn/batch_loss.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {
namespace {

TEST(BatchUpdates, an_epoch_has_every_group_once_in_an_order_of_its_own) {
  const BatchUpdates updates{.epochs = 3, .minibatches = 3, .seed = 5};
  std::set<std::vector<std::vector<size_t>>> orders;
  for (const uint64_t step : {1, 2}) {
    for (int epoch = 0; epoch < 3; ++epoch) {
      const auto parts = minibatches_of(updates, 11, step, epoch);
      ASSERT_EQ(parts.size(), 3u);
      std::multiset<size_t> seen;
      for (const auto& part : parts) {
        EXPECT_GE(part.size(), 3u);
        EXPECT_LE(part.size(), 4u);
        EXPECT_TRUE(std::ranges::is_sorted(part));
        seen.insert(part.begin(), part.end());
      }
      EXPECT_EQ(seen, (std::multiset<size_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
      EXPECT_EQ(minibatches_of(updates, 11, step, epoch), parts);
      orders.insert(parts);
    }
  }
  EXPECT_EQ(orders.size(), 6u) << "each step and epoch has its own";
  EXPECT_NE(minibatches_of({.epochs = 3, .minibatches = 3, .seed = 6}, 11, 1, 0), minibatches_of(updates, 11, 1, 0));
  EXPECT_EQ(minibatches_of(updates, 2, 1, 0).size(), 2u) << "no part is empty";
  EXPECT_TRUE(minibatches_of(updates, 0, 1, 0).empty());
}

class SeveralUpdates : public testing::Test {
 protected:
  static constexpr uint64_t kVersion = 7;

  static Learner learner(const BatchUpdates& updates, LearningRate rate = {.peak = 3e-3}) {
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
                                      {.learning_rate = rate, .max_pass_tokens = 40, .updates = updates}));
  }

  // Five groups of three samples, some with a tool's word in the middle. The sampler's logprobs are another policy's.
  static std::vector<Sample> samples() {
    Random random(3);
    std::vector<Sample> samples;
    for (uint64_t group = 0; group < 5; ++group) {
      for (int i = 0; i < 3; ++i) {
        Sample sample{.advantage = random.normal(), .group = group};
        for (uint64_t token = 0; token < 6; ++token)
          sample.tokens.push_back(static_cast<int32_t>((7 * group + token) % 50));
        for (uint64_t more = 4 + random.below(6); more > 0; --more)
          sample.tokens.push_back(static_cast<int32_t>(random.below(50)));
        for (size_t at = 0; at < sample.tokens.size(); ++at) sample.trained.push_back(at >= 6 && at != 8);
        sample.versions.assign(sample.tokens.size(), kVersion);
        for (size_t at = 0; at < sample.tokens.size(); ++at)
          sample.logprobs.push_back(static_cast<float>(-4 + 0.1 * random.normal()));
        samples.push_back(std::move(sample));
      }
    }
    return samples;
  }

  // The samples as if `learner` had sampled them.
  static std::vector<Sample> sampled_by(Learner& learner, std::vector<Sample> samples) {
    for (Sample& sample : samples) {
      for (size_t i = 1; i < sample.tokens.size(); ++i) {
        if (!sample.trained[i]) continue;
        Sample alone = sample;
        alone.trained.assign(sample.tokens.size(), 0);
        alone.trained[i] = 1;
        sample.logprobs[i] = static_cast<float>(-*learner.evaluate(std::span(&alone, 1)));
      }
    }
    return samples;
  }

  // What `updates` says in single steps: each minibatch is a batch whose sampler was the policy before the first.
  static std::vector<StepMetrics> unrolled(Learner& single, const std::vector<Sample>& samples,
                                           const BatchUpdates& updates, const Algorithm& algorithm, size_t most = 100) {
    std::vector<StepMetrics> steps;
    for (int epoch = 0; epoch < updates.epochs; ++epoch) {
      for (const auto& groups : minibatches_of(updates, 5, kVersion + 1, epoch)) {
        std::vector<Sample> part;
        for (const size_t group : groups)
          part.insert(part.end(), samples.begin() + static_cast<ptrdiff_t>(3 * group),
                      samples.begin() + static_cast<ptrdiff_t>(3 * group + 3));
        if (steps.size() < most) steps.push_back(*single.reinforce(part, algorithm, kVersion));
      }
    }
    return steps;
  }

  static bool same_weights(const Learner& a, const Learner& b) {
    return std::ranges::equal(a.weights().wire(), b.weights().wire());
  }
};

TEST_F(SeveralUpdates, are_single_steps_on_the_minibatches_to_the_last_bit) {
  const BatchUpdates updates{.epochs = 2, .minibatches = 2, .seed = 4};
  for (const char* text : {R"({"name": "grpo"})", R"({"name": "dapo", "aggregation": "seq_mean_token_mean"})",
                           R"({"name": "gspo", "clip_low": 0.01, "clip_high": 0.01})", R"({"name": "cispo"})"}) {
    const auto algorithm = *algorithm_from_json(Json::parse(text));
    Learner several = learner(updates), single = learner({});
    const auto batch = samples();
    const auto steps = unrolled(single, sampled_by(single, batch), updates, algorithm);
    const auto step = several.reinforce(batch, algorithm, kVersion);
    ASSERT_TRUE(step.has_value()) << step.error().to_string();
    EXPECT_TRUE(same_weights(several, single)) << text;
    EXPECT_EQ(several.steps(), 1);
    ASSERT_EQ(step->updates.size(), 4u);
    double loss = 0;
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(step->updates[i].loss, steps[i].loss) << text << i;
      EXPECT_EQ(step->updates[i].grad_norm, steps[i].grad_norm) << text << i;
      EXPECT_EQ(step->updates[i].ratio_max, steps[i].ratio_max) << text << i;
      EXPECT_EQ(step->updates[i].clip_fraction, steps[i].clip_fraction) << text << i;
      EXPECT_DOUBLE_EQ(step->updates[i].approx_kl, steps[i].mismatch_kl) << text << i;
      EXPECT_EQ(step->updates[i].tokens, steps[i].trained_tokens);
      loss += steps[i].loss;
    }
    EXPECT_EQ(step->loss, loss / 4);
    EXPECT_EQ(step->updates[0].approx_kl, 0) << "the first update is of the policy before the step";
    EXPECT_GT(step->updates[3].approx_kl, 0);
    EXPECT_GT(step->mismatch_kl, 0) << "of the sampler";
    EXPECT_GT(step->max_abs_logprob_diff, 0) << "the sampler was another policy";
  }
}

// Two samples of each group begin with three tokens that were drawn once. Advantages are credited once, and weights of
// tokens go into every update.
TEST_F(SeveralUpdates, of_samples_that_share_trunks_are_single_steps_too) {
  const BatchUpdates updates{.epochs = 2, .minibatches = 2, .seed = 4};
  auto batch = samples();
  for (size_t first = 0; first < batch.size(); first += 3) {
    for (size_t i = first; i < first + 2; ++i) {
      batch[i].trunk = static_cast<int64_t>(first);
      batch[i].trunk_tokens = 10;
    }
    std::copy_n(batch[first].tokens.begin(), 10, batch[first + 1].tokens.begin());
    std::copy_n(batch[first].logprobs.begin(), 10, batch[first + 1].logprobs.begin());
  }
  auto apart = batch;
  for (Sample& sample : apart) sample.trunk = -1;
  for (const char* text : {R"({"name": "grpo", "branch_local": 0.5})",
                           R"({"name": "dapo", "aggregation": "seq_mean_token_mean", "branch_local": 1})",
                           R"({"name": "clip_cov", "branch_local": 1})"}) {
    const auto algorithm = *algorithm_from_json(Json::parse(text));
    Learner several = learner(updates), single = learner({}), plain = learner(updates);
    const bool looks_at_all = algorithm.name == "clip_cov";
    const auto step = several.reinforce(batch, algorithm, kVersion);
    ASSERT_TRUE(step.has_value()) << step.error().to_string();
    ASSERT_TRUE(plain.reinforce(apart, algorithm, kVersion).has_value());
    EXPECT_FALSE(same_weights(several, plain)) << text;
    if (looks_at_all) continue;  // its baseline of the whole batch is no minibatch's
    const auto steps = unrolled(single, sampled_by(single, batch), updates, algorithm);
    EXPECT_TRUE(same_weights(several, single)) << text;
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(step->updates[i].loss, steps[i].loss) << text << i;
  }
}

// What a trunk teaches does not depend on how many samples have it: the same twice is the same once.
TEST_F(SeveralUpdates, of_a_trunk_that_is_all_there_is_count_it_once) {
  auto batch = samples();
  batch.resize(1);
  batch[0].advantage = 0.5;
  auto twice = batch;
  twice.push_back(batch[0]);
  for (Sample& sample : twice) {
    sample.trunk = 0;
    sample.trunk_tokens = static_cast<uint32_t>(sample.tokens.size());
  }
  const auto algorithm = *algorithm_named("grpo");
  Learner one = learner({}), two = learner({});
  const auto of_one = one.reinforce(batch, algorithm, kVersion), of_two = two.reinforce(twice, algorithm, kVersion);
  ASSERT_TRUE(of_one.has_value() && of_two.has_value());
  EXPECT_DOUBLE_EQ(of_one->loss, of_two->loss);
  EXPECT_EQ(of_one->tree_tokens, of_two->tree_tokens);
  EXPECT_TRUE(same_weights(one, two));
}

// Advantages of the whole batch are made once, and not again of a minibatch.
TEST_F(SeveralUpdates, have_the_advantages_of_the_whole_batch) {
  const BatchUpdates updates{.epochs = 2, .minibatches = 3};
  Learner several = learner(updates), single = learner({});
  const auto batch = samples();
  auto old = sampled_by(single, batch);
  // By reinforce++ without a discount: rewards, whitened over all tokens.
  double count = 0, sum = 0, squares = 0;
  const auto over_tokens = [&](const auto& add) {
    for (const Sample& sample : batch) {
      for (size_t i = 0; i < sample.trained.size(); ++i) {
        if (sample.trained[i]) add(sample.advantage);
      }
    }
  };
  over_tokens([&](double reward) { ++count, sum += reward; });
  over_tokens([&](double reward) { squares += (reward - sum / count) * (reward - sum / count); });
  for (Sample& sample : old)
    sample.advantage = (sample.advantage - sum / count) * (1 / std::sqrt(squares / (count - 1) + 1e-8));
  unrolled(single, old, updates, *algorithm_named("grpo"));
  ASSERT_TRUE(several.reinforce(batch, *algorithm_named("reinforce++"), kVersion));
  EXPECT_TRUE(same_weights(several, single));
}

TEST_F(SeveralUpdates, end_early_where_the_policy_has_moved_too_far) {
  BatchUpdates updates{.epochs = 4, .minibatches = 2, .seed = 1};
  const auto algorithm = *algorithm_named("grpo");
  const auto batch = samples();
  Learner whole = learner(updates);
  const auto all = *whole.reinforce(batch, algorithm, kVersion);
  updates.kl_stop = all.updates[3].approx_kl * 0.999;
  size_t expected = 0;
  while (all.updates[expected].approx_kl <= updates.kl_stop) ++expected;
  Learner several = learner(updates), single = learner({});
  const auto step = *several.reinforce(batch, algorithm, kVersion);
  ASSERT_EQ(step.updates.size(), expected + 1);
  EXPECT_FALSE(step.updates.back().taken);
  EXPECT_TRUE(step.updates[expected - 1].taken);
  unrolled(single, sampled_by(single, batch), updates, algorithm, expected);
  EXPECT_TRUE(same_weights(several, single)) << "the gradient that was not applied is forgotten";
  ASSERT_TRUE(several.reinforce(batch, algorithm, kVersion + 1));
  EXPECT_EQ(several.steps(), 2);
}

TEST_F(SeveralUpdates, share_the_learning_rate_of_their_step) {
  const LearningRate rate{.peak = 1e-3, .warmup_steps = 4, .steps = 8};
  Learner several = learner({.epochs = 3}, rate);
  for (int64_t number = 1; number <= 3; ++number)
    EXPECT_DOUBLE_EQ(several.reinforce(samples(), *algorithm_named("grpo"), kVersion)->learning_rate, rate.at(number));
}

// How many updates there were is no function of the steps once one ends early: the checkpoint has it.
TEST_F(SeveralUpdates, go_on_from_a_checkpoint_with_the_same_bits) {
  const fs::path folder = fs::path(testing::TempDir()) / ("several-updates-checkpoint-" + std::to_string(::getpid()));
  for (const char* text :
       {R"({"name": "grpo"})", R"({"name": "ppo", "value": {"trunk": true, "learning_rate": 0.02}})"}) {
    const auto algorithm = *algorithm_from_json(Json::parse(text));
    const BatchUpdates updates{.epochs = 3, .minibatches = 2, .kl_stop = 1e-4};
    Learner first = learner(updates), second = learner(updates);
    ASSERT_TRUE(first.prepare(algorithm) && second.prepare(algorithm));
    const auto step = *first.reinforce(samples(), algorithm, 0);
    ASSERT_LT(step.updates.size(), 6u) << "this one is to end early";
    ASSERT_TRUE(first.save(folder));
    ASSERT_TRUE(second.load(folder));
    for (uint64_t version = 1; version < 3; ++version) {
      const auto a = first.reinforce(samples(), algorithm, version),
                 b = second.reinforce(samples(), algorithm, version);
      ASSERT_TRUE(a && b);
      EXPECT_EQ(a->loss, b->loss);
      EXPECT_EQ(a->grad_norm, b->grad_norm);
    }
    EXPECT_TRUE(same_weights(first, second)) << text;
    fs::remove_all(folder);
  }
}

// A function gets each minibatch with the logprobs before the step beside those of now.
TEST_F(SeveralUpdates, show_a_function_of_the_users_own_the_policy_before_the_step) {
  struct Watching final : LossFunction {
    mutable std::vector<LossBatch> batches;
    Result<FunctionOutput> compute(const FunctionInput& input) const override {
      batches.push_back(input.batch);
      Rows gradients(input.advantages.size(), 0);
      for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = input.batch.mask[i] ? -input.advantages[i] : 0;
      return FunctionOutput{.loss = 1, .grad_logprobs = gradients};
    }
  };
  Learner several = learner({.epochs = 2, .minibatches = 2});
  const auto watching = std::make_shared<Watching>();
  several.use({.loss = watching, .advantages = nullptr});
  ASSERT_TRUE(several.reinforce(
      samples(), *algorithm_from_json({{"name", "torch"}, {"script", "x"}, {"advantage", "dr_grpo"}}), kVersion));
  ASSERT_EQ(watching->batches.size(), 4u);
  EXPECT_EQ(watching->batches[0].rows + watching->batches[1].rows, 15u);
  EXPECT_EQ(watching->batches[0].logprobs, watching->batches[0].old_logprobs);
  EXPECT_NE(watching->batches[3].logprobs, watching->batches[3].old_logprobs);
}

TEST_F(SeveralUpdates, of_a_critic_fit_it_better) {
  const auto algorithm = *algorithm_from_json(Json::parse(R"({"name": "ppo", "value": {"learning_rate": 0.02}})"));
  const auto loss_after = [&](const BatchUpdates& updates) {
    Learner taught = learner(updates, {.peak = 0});
    EXPECT_TRUE(taught.prepare(algorithm));
    for (uint64_t version = 0; version < 5; ++version) EXPECT_TRUE(taught.reinforce(samples(), algorithm, version));
    return taught.reinforce(samples(), algorithm, 5)->of_loss.at("value_loss");
  };
  EXPECT_LT(loss_after({.epochs = 4}), loss_after({}));
}

TEST_F(SeveralUpdates, are_refused_where_they_cannot_be) {
  EXPECT_FALSE(check(BatchUpdates{.epochs = 0}));
  EXPECT_FALSE(check(BatchUpdates{.minibatches = 0}));
  EXPECT_FALSE(check(BatchUpdates{.kl_stop = -1}));
  EXPECT_TRUE(check(BatchUpdates{}));
}

}  // namespace
}  // namespace tandem::trainer
