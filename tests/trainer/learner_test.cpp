#include "trainer/learn/learner.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "base/random.h"
#include "trainer/learn/algorithm_config.h"
#include "trainer/learn/batch_loss.h"

namespace tandem::trainer {
namespace {

model::ModelConfig tiny_config() {
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
  return config;
}

Learner tiny_learner(uint64_t seed = 1, model::WeightFormat format = model::WeightFormat::kBf16) {
  auto weights = std::move(*model::Weights::create(tiny_config(), true, format));
  model::randomise(weights, seed);
  for (auto& value : weights.flat()) value = kernels::to_bf16(kernels::to_float(value) * 4);
  return std::move(*Learner::create(std::move(weights), std::move(*kernels::Stream::cpu(1)),
                                    {.learning_rate = {.peak = 1e-4}, .max_pass_tokens = 40}));
}

// Three samples of one prompt of 8 tokens; their logprobs are the learner's own plus what the sampler did differently.
std::vector<Sample> samples_of(Learner& learner, double difference) {
  Random random(3);
  std::vector<int32_t> prompt(8);
  for (auto& token : prompt) token = static_cast<int32_t>(random.below(50));
  std::vector<Sample> samples;
  for (const auto& [length, advantage] : {std::pair{5, 0.5}, {9, -1.0}, {7, 0.25}}) {
    Sample sample{.tokens = prompt, .advantage = advantage};
    for (int i = 0; i < length; ++i) sample.tokens.push_back(static_cast<int32_t>(random.below(50)));
    for (size_t i = 0; i < sample.tokens.size(); ++i) sample.trained.push_back(i >= 8 && i != 10);  // 10: a tool's word
    sample.versions.assign(sample.tokens.size(), 7);
    sample.logprobs.assign(sample.tokens.size(), 0);
    for (size_t i = 8; i < sample.tokens.size(); ++i) {
      Sample alone = sample;
      alone.trained.assign(sample.tokens.size(), 0);
      alone.trained[i] = 1;
      const double own = -*learner.evaluate(std::span(&alone, 1));
      sample.logprobs[i] = static_cast<float>(own + difference * random.normal());
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

// The same as rows of a batch, with `logprobs` computed by `learner`.
LossBatch batch_of(Learner& learner, const std::vector<Sample>& samples, Learner* reference) {
  LossBatch batch{.rows = samples.size(), .length = 9};
  for (const Sample& sample : samples) {
    for (size_t i = 8; i < 17; ++i) {
      const bool counts = i < sample.tokens.size() && sample.trained[i];
      batch.mask.push_back(counts);
      batch.advantages.push_back(sample.advantage);
      Sample alone = sample;
      alone.trained.assign(sample.tokens.size(), 0);
      if (counts) alone.trained[i] = 1;
      batch.logprobs.push_back(counts ? -*learner.evaluate(std::span(&alone, 1)) : 0);
      batch.rollout_logprobs.push_back(counts ? sample.logprobs[i] : 0);
      if (reference) batch.ref_logprobs.push_back(counts ? -*reference->evaluate(std::span(&alone, 1)) : 0);
    }
  }
  return batch;
}

// A step of the trainer is taken by the loss that `tandem loss` prints, for every name that a run may have.
TEST(Learner, takes_its_steps_by_the_loss_of_the_batch) {
  for (const char* text :
       {R"({"name": "grpo"})", R"({"name": "dapo"})", R"({"name": "gspo", "clip_low": 0.5, "clip_high": 0.5})",
        R"({"name": "cispo"})", R"({"name": "sapo"})", R"({"name": "gmpo", "clip_low": 0.01})", R"({"name": "maxrl"})",
        R"({"name": "dppo", "mask_low": 0.001})", R"({"name": "dr_grpo", "dual_clip": 1.05})",
        R"({"name": "grpo", "correction": {"kind": "tis", "high": 1.01}})",
        R"({"name": "gspo", "correction": {"kind": "icepop", "level": "sequence", "low": 0.001, "high": 1000}})",
        R"({"name": "dr_grpo", "kl": {"estimator": "k3", "coefficient": 0.1}, "entropy": {"coefficient": 0.01}})"}) {
    const auto algorithm = *algorithm_from_json(Json::parse(text));
    const bool kl = algorithm.kl.estimator != Kl::Estimator::kNone;
    Learner learner = tiny_learner(), start = tiny_learner();
    if (kl) {
      ASSERT_TRUE(learner.keep_reference());
    }
    const auto samples = samples_of(learner, 0.1);
    ASSERT_TRUE(learner.reinforce(samples, algorithm, 7));  // away from the reference

    LossBatch batch = batch_of(learner, samples, kl ? &start : nullptr);
    if (algorithm.correction.kind != Correction::Kind::kNone) batch.old_logprobs = batch.logprobs;
    const auto expected = batch_loss(batch, algorithm);
    ASSERT_TRUE(expected.has_value()) << expected.error().to_string();
    const auto step = learner.reinforce(samples, algorithm, 8);
    ASSERT_TRUE(step.has_value());
    EXPECT_DOUBLE_EQ(step->loss, expected->loss) << text;
    EXPECT_EQ(step->kl != 0, kl) << text;
    if (kl) {
      EXPECT_DOUBLE_EQ(step->kl, expected->metrics.at("kl"));
    }
    if (expected->metrics.contains("correction_mean")) {
      EXPECT_DOUBLE_EQ(step->correction_mean, expected->metrics.at("correction_mean"));
      EXPECT_NE(step->correction_mean, 1);
    }
    double expected_gradient = 0;
    for (const double gradient : expected->grad_logprobs) expected_gradient += std::abs(gradient);
    EXPECT_GT(expected_gradient, 0) << text;
    EXPECT_GT(step->grad_norm, 0) << text;
  }
}

// Where a loss is of the whole batch the trainer makes the advantages, of the rewards.
TEST(Learner, takes_the_steps_of_the_whole_batch_by_that_loss_too) {
  for (const char* text :
       {R"({"name": "reinforce++"})", R"({"name": "grpo", "advantage": "reinforce++", "gamma": 0.9})",
        R"({"name": "rloo", "whiten_advantages": true})",
        R"({"name": "grpo", "correction": {"kind": "tis", "high": 1.01}, "whiten_advantages": true})",
        R"({"name": "grpo", "kl": {"estimator": "k3", "coefficient": 0.1, "in_reward": true}})"}) {
    const auto algorithm = *algorithm_from_json(Json::parse(text));
    ASSERT_TRUE(is_of_whole_batch(algorithm)) << text;
    const bool kl = algorithm.kl.estimator != Kl::Estimator::kNone;
    Learner learner = tiny_learner(), start = tiny_learner();
    if (kl) {
      ASSERT_TRUE(learner.keep_reference());
    }
    auto samples = samples_of(learner, 0.1);
    for (Sample& sample : samples) sample.group = 5;
    ASSERT_TRUE(learner.reinforce(samples, algorithm, 7));

    LossBatch batch = batch_of(learner, samples, kl ? &start : nullptr);
    batch.groups = {5, 5, 5};
    batch.rewards.assign(batch.mask.size(), 0);
    for (size_t row = 0; row < batch.rows; ++row) {
      size_t last = 0;
      for (size_t i = row * batch.length; i < (row + 1) * batch.length; ++i) last = batch.mask[i] ? i : last;
      batch.rewards[last] = samples[row].advantage;
    }
    batch.advantages.clear();
    // A gap of a tool's words ends what a discount runs over; a row of the trainer has none.
    LossBatch packed = batch;
    for (size_t row = 0; row < batch.rows; ++row) {
      std::vector<size_t> kept;
      for (size_t i = row * batch.length; i < (row + 1) * batch.length; ++i) {
        if (batch.mask[i]) kept.push_back(i);
      }
      for (size_t i = 0; i < batch.length; ++i) {
        const size_t to = row * batch.length + i;
        const bool there = i < kept.size();
        packed.mask[to] = there;
        const auto move = [&](Rows LossBatch::*member) {
          if (!(batch.*member).empty()) (packed.*member)[to] = there ? (batch.*member)[kept[i]] : 0;
        };
        for (const auto member :
             {&LossBatch::logprobs, &LossBatch::rollout_logprobs, &LossBatch::ref_logprobs, &LossBatch::rewards})
          move(member);
      }
    }
    if (algorithm.correction.kind != Correction::Kind::kNone) packed.old_logprobs = packed.logprobs;
    const auto expected = batch_loss(packed, algorithm);
    ASSERT_TRUE(expected.has_value()) << expected.error().to_string();
    const auto step = learner.reinforce(samples, algorithm, 8);
    ASSERT_TRUE(step.has_value()) << step.error().to_string();
    EXPECT_DOUBLE_EQ(step->loss, expected->loss) << text;
    EXPECT_GT(step->grad_norm, 0) << text;
    EXPECT_GT(step->compared_tokens + 1, 0);
  }
}

// Two prompts of which one is rewarded: the critic comes to tell them apart.
TEST(Learner, has_a_critic_that_learns_to_foresee_rewards) {
  const auto algorithm = *algorithm_from_json(Json::parse(R"({"name": "ppo", "value": {"learning_rate": 0.02}})"));
  Learner learner = tiny_learner();
  ASSERT_TRUE(learner.prepare(algorithm));
  learner.set_learning_rate(0);
  auto samples = samples_of(learner, 0);
  for (Sample& sample : samples) sample.advantage = 1;
  const auto rewarded = samples;
  for (Sample sample : rewarded) {
    for (size_t i = 0; i < 8; ++i) sample.tokens[i] = (sample.tokens[i] + 7) % 50;
    sample.advantage = -1;
    samples.push_back(sample);
  }
  const auto first = learner.reinforce(samples, algorithm, 7);
  ASSERT_TRUE(first.has_value()) << first.error().to_string();
  EXPECT_NEAR(first->of_loss.at("value_loss"), 1, 1e-12);  // it begins at 0, and returns are 1 and -1
  double last = 1;
  for (int i = 0; i < 100; ++i) last = learner.reinforce(samples, algorithm, 7)->of_loss.at("value_loss");
  EXPECT_LT(last, 0.3);
}

// Rewards of turns stand on the last token of their turn, and all of a sample add up to its reward.
TEST(Learner, credits_a_turn_with_its_own_reward) {
  struct Watching final : LossFunction {
    mutable LossBatch batch;
    mutable Rows advantages;
    Result<FunctionOutput> compute(const FunctionInput& input) const override {
      batch = input.batch;
      advantages = input.advantages;
      return FunctionOutput{.loss = 0, .grad_logprobs = Rows(input.advantages.size(), 0)};
    }
  };
  Learner learner = tiny_learner();
  auto samples = samples_of(learner, 0);  // two tokens, a tool's word, and the rest
  samples[0].turn_rewards = {0.25, -1};
  samples[1].turn_rewards = {0.5, 0, 7};  // of a turn without a token: its part is the last token's
  const auto watching = std::make_shared<Watching>();
  learner.use({.loss = watching, .advantages = nullptr});
  ASSERT_TRUE(learner.reinforce(
      samples,
      *algorithm_from_json(
          {{"name", "torch"}, {"script", "x"}, {"advantage", "reinforce++"}, {"whiten_advantages", false}}),
      7));
  const auto row = [&](const Rows& rows, size_t number) {
    const auto first = rows.begin() + static_cast<std::ptrdiff_t>(number * watching->batch.length);
    return std::vector<double>(first, first + static_cast<std::ptrdiff_t>(watching->batch.length));
  };
  EXPECT_EQ(row(watching->batch.rewards, 0), (std::vector<double>{0, 0.25, 0, 0.25, 0, 0, 0, 0}));
  EXPECT_EQ(row(watching->advantages, 0), (std::vector<double>{0.5, 0.5, 0.25, 0.25, 0, 0, 0, 0}));
  EXPECT_EQ(row(watching->batch.rewards, 1), (std::vector<double>{0, 0.5, 0, 0, 0, 0, 0, -1.5}));
  EXPECT_EQ(row(watching->batch.rewards, 2), (std::vector<double>{0, 0, 0, 0, 0, 0.25, 0, 0}));
}

// A turn is compared with the turns of its group that saw the same answer of a tool directly before.
TEST(Learner, credits_a_turn_among_those_that_began_in_its_state) {
  struct Watching final : LossFunction {
    mutable Rows advantages;
    Result<FunctionOutput> compute(const FunctionInput& input) const override {
      advantages = input.advantages;
      return FunctionOutput{.loss = 0, .grad_logprobs = Rows(input.advantages.size(), 0)};
    }
  };
  Learner learner = tiny_learner();
  auto samples = samples_of(learner, 0);  // a prompt; two tokens, a tool's word, and the rest
  for (Sample& sample : samples) sample.group = 5;
  samples[0].tokens[10] = samples[1].tokens[10] = 3;
  samples[2].tokens[10] = 4;
  samples[0].advantage = 1, samples[1].advantage = 0, samples[2].advantage = 0.5;  // rewards
  const auto watching = std::make_shared<Watching>();
  learner.use({.loss = watching, .advantages = nullptr});
  const Json algorithm = {{"name", "torch"},      {"script", "x"},
                          {"advantage", "gigpo"}, {"whiten_advantages", false},
                          {"gamma", 0.5},         {"gigpo", {{"weight", 10}, {"std", false}}}};
  for (const int epochs : {1, 2}) {
    Learner taught = tiny_learner();
    if (epochs > 1) {
      auto weights = std::move(*model::Weights::create(tiny_config(), true));
      taught = std::move(*Learner::create(std::move(weights), std::move(*kernels::Stream::cpu(1)),
                                          {.learning_rate = {.peak = 1e-4}, .updates = {.epochs = epochs}}));
    }
    taught.use({.loss = watching, .advantages = nullptr});
    const auto step = taught.reinforce(samples, *algorithm_from_json(algorithm), 7);
    ASSERT_TRUE(step.has_value()) << step.error().to_string();
    EXPECT_DOUBLE_EQ(step->of_loss.at("shared_states"), 2.0 / 3);
    const size_t length = watching->advantages.size() / 3;
    const auto at = [&](size_t row, size_t token) { return watching->advantages[row * length + token]; };
    // Episodes: 0.5, -0.5, 0. First turns, of one state: half of it. Second turns: 1 and 0 were in one state, 0.5
    // alone.
    EXPECT_DOUBLE_EQ(at(0, 0), 0.5 + 10 * 0.25);
    EXPECT_DOUBLE_EQ(at(0, 2), 0.5 + 10 * 0.5);
    EXPECT_DOUBLE_EQ(at(1, 1), -0.5 - 10 * 0.25);
    EXPECT_DOUBLE_EQ(at(1, 3), -0.5 - 10 * 0.5);
    EXPECT_DOUBLE_EQ(at(2, 0), 0);
    EXPECT_DOUBLE_EQ(at(2, 2), 0);
  }
}

TEST(Learner, a_function_that_fails_leaves_everything_as_it_was) {
  struct Failing final : LossFunction {
    Result<FunctionOutput> compute(const FunctionInput&) const override {
      return fail(Status::invalid("it has its reasons"));
    }
  };
  Learner learner = tiny_learner();
  const auto samples = samples_of(learner, 0);
  const std::vector<std::byte> before(learner.weights().wire().begin(), learner.weights().wire().end());
  learner.use({.loss = std::make_shared<Failing>(), .advantages = nullptr});
  const auto step = learner.reinforce(
      samples, *algorithm_from_json({{"name", "torch"}, {"script", "x"}, {"advantage", "reinforce++"}}), 7);
  ASSERT_FALSE(step.has_value());
  EXPECT_EQ(step.error().message(), "it has its reasons");
  EXPECT_TRUE(std::ranges::equal(learner.weights().wire(), before));
  EXPECT_EQ(learner.steps(), 0);
  // And the next one is taken as if nothing had been.
  Learner other = tiny_learner();
  ASSERT_TRUE(learner.reinforce(samples, *algorithm_named("grpo"), 7));
  ASSERT_TRUE(other.reinforce(samples, *algorithm_named("grpo"), 7));
  EXPECT_TRUE(std::ranges::equal(learner.weights().wire(), other.weights().wire()));
}

TEST(Learner, learns_what_was_rewarded_and_unlearns_what_was_not) {
  for (const char* name : {"grpo", "gspo", "cispo", "dppo"}) {
    Learner learner = tiny_learner();
    const auto samples = samples_of(learner, 0);
    const double good = *learner.evaluate(std::span(&samples[0], 1)),
                 bad = *learner.evaluate(std::span(&samples[1], 1));
    ASSERT_TRUE(learner.reinforce(samples, *algorithm_named(name), 7));
    EXPECT_LT(*learner.evaluate(std::span(&samples[0], 1)), good) << name;
    EXPECT_GT(*learner.evaluate(std::span(&samples[1], 1)), bad) << name;
  }
}

TEST(Learner, learns_in_low_precision_agrees_with_its_sampler_and_goes_on_from_a_checkpoint) {
  const fs::path folder = fs::path(testing::TempDir()) / ("low-precision-checkpoint-" + std::to_string(::getpid()));
  for (const auto format : {model::WeightFormat::kFp8, model::WeightFormat::kMxfp8}) {
    Learner learner = tiny_learner(1, format), other = tiny_learner(2, format);
    const std::string suffix = std::string("-") + model::to_string(format);
    EXPECT_TRUE(learner.numerics_id().ends_with(suffix)) << learner.numerics_id();
    const auto samples = samples_of(learner, 0);
    const auto step = learner.reinforce(samples, *algorithm_named("dr_grpo"), 7);
    ASSERT_TRUE(step.has_value());
    EXPECT_GT(step->compared_tokens, 0);
    EXPECT_EQ(step->max_abs_logprob_diff, 0);

    learner.set_learning_rate(2e-3);
    other.set_learning_rate(2e-3);
    const double before = *learner.evaluate(samples);
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(learner.imitate(samples));
    EXPECT_LT(*learner.evaluate(samples), 0.8 * before);

    ASSERT_TRUE(learner.save(folder));
    ASSERT_TRUE(other.load(folder));
    ASSERT_TRUE(learner.imitate(samples) && other.imitate(samples));
    EXPECT_TRUE(std::ranges::equal(learner.weights().wire(), other.weights().wire()));
    fs::remove_all(folder);
  }
}

TEST(Learner, learns_with_every_optimizer_and_goes_on_from_its_checkpoints_and_no_others) {
  const fs::path folder = fs::path(testing::TempDir()) / ("optimizer-checkpoint-" + std::to_string(::getpid()));
  const auto learner_with = [](OptimizerKind kind, Moments moments) {
    auto weights = std::move(*model::Weights::create(tiny_config(), true));
    model::randomise(weights, 1);
    return std::move(*Learner::create(std::move(weights), std::move(*kernels::Stream::cpu(1)),
                                      {.kind = kind, .moments = moments, .learning_rate = {.peak = 2e-3}}));
  };
  for (const auto kind : {OptimizerKind::kAdamW, OptimizerKind::kMuon}) {
    for (const auto moments : {Moments::kFp32, Moments::kBf16}) {
      Learner learner = learner_with(kind, moments), other = learner_with(kind, moments);
      const auto samples = samples_of(learner, 0);
      const double before = *learner.evaluate(samples);
      for (int i = 0; i < 20; ++i) ASSERT_TRUE(learner.imitate(samples));
      EXPECT_LT(*learner.evaluate(samples), 0.8 * before);
      ASSERT_TRUE(learner.save(folder));
      ASSERT_TRUE(other.load(folder));
      ASSERT_TRUE(learner.imitate(samples) && other.imitate(samples));
      EXPECT_TRUE(std::ranges::equal(learner.weights().wire(), other.weights().wire()));
    }
  }
  Learner adamw = learner_with(OptimizerKind::kAdamW, Moments::kFp32);
  const Status refused = adamw.load(folder);
  EXPECT_EQ(refused.code(), Code::kInvalid);
  EXPECT_NE(refused.message().find("of another optimizer: muon, bf16 moments, not adamw, fp32 moments"),
            std::string::npos)
      << refused.message();
  fs::remove_all(folder);
}

// Two samples of one prompt as one sample of two segments, the second of which sees nothing of the first.
Sample joined(const Sample& first, const Sample& second) {
  Sample sample = first;
  sample.later_segments = {static_cast<uint32_t>(first.tokens.size())};
  sample.tokens.insert(sample.tokens.end(), second.tokens.begin(), second.tokens.end());
  sample.trained.insert(sample.trained.end(), second.trained.begin(), second.trained.end());
  sample.logprobs.insert(sample.logprobs.end(), second.logprobs.begin(), second.logprobs.end());
  sample.versions.insert(sample.versions.end(), second.versions.begin(), second.versions.end());
  return sample;
}

TEST(Learner, segments_have_the_gradients_of_rows_of_their_own_and_share_what_they_begin_with) {
  // A mean over all tokens does not ask which row a token is of.
  const auto algorithm = *algorithm_from_json(Json::parse(R"({"name": "dapo"})"));
  Learner apart = tiny_learner(), together = tiny_learner();
  auto samples = samples_of(apart, 0.1);
  samples[1].advantage = samples[0].advantage;
  for (Sample& sample : samples) sample.group = 5;
  const std::vector<Sample> summed_up = {joined(samples[0], samples[1]), samples[2]};
  const auto by_rows = apart.reinforce(samples, algorithm, 7);
  const auto by_segments = together.reinforce(summed_up, algorithm, 7);
  ASSERT_TRUE(by_rows && by_segments);
  EXPECT_NEAR(by_segments->loss, by_rows->loss, 1e-12);
  EXPECT_NEAR(by_segments->grad_norm, by_rows->grad_norm, 1e-6 * by_rows->grad_norm);
  EXPECT_GT(by_rows->grad_norm, 0);
  EXPECT_EQ(by_segments->trained_tokens, by_rows->trained_tokens);
  EXPECT_EQ(by_segments->compared_tokens, by_rows->compared_tokens);
  EXPECT_EQ(by_segments->max_abs_logprob_diff, by_rows->max_abs_logprob_diff) << "each token after its own segment";
  EXPECT_EQ(by_segments->tree_tokens, by_rows->tree_tokens) << "the prompt is computed once";
  double furthest = 0;
  const auto a = apart.weights().flat(), b = together.weights().flat();
  for (size_t i = 0; i < a.size(); ++i)
    furthest = std::max(furthest, std::abs(double{kernels::to_float(a[i])} - kernels::to_float(b[i])));
  EXPECT_LT(furthest, 1e-6);
}

TEST(Learner, a_summary_has_no_turn_reward_and_the_turns_behind_it_keep_theirs) {
  struct Watching final : LossFunction {
    mutable LossBatch batch;
    Result<FunctionOutput> compute(const FunctionInput& input) const override {
      batch = input.batch;
      return FunctionOutput{.loss = 0, .grad_logprobs = Rows(input.advantages.size(), 0)};
    }
  };
  Learner learner = tiny_learner();
  const auto samples = samples_of(learner, 0);
  // Turns of two tokens and of two: the second is the summary. Then turns of two and of six.
  Sample sample = joined(samples[0], samples[1]);
  sample.advantage = 1;
  sample.turn_rewards = {0.25, 0.5, 0.125};
  const auto watching = std::make_shared<Watching>();
  learner.use({.loss = watching, .advantages = nullptr});
  ASSERT_TRUE(learner.reinforce(
      std::span(&sample, 1),
      *algorithm_from_json(
          {{"name", "torch"}, {"script", "x"}, {"advantage", "reinforce++"}, {"whiten_advantages", false}}),
      7));
  EXPECT_EQ(watching->batch.rewards, (Rows{0, 0.25, 0, 0, 0, 0.5, 0, 0, 0, 0, 0, 0.25}));
  EXPECT_EQ(watching->batch.turns, (std::vector<int64_t>{0, 0, 1, 1, 2, 2, 3, 3, 3, 3, 3, 3}));
}

}  // namespace
}  // namespace tandem::trainer
