// A teacher: what its logprobs add to advantages, however a step is taken, and which models can be one.
#include "trainer/learn/teacher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/random.h"
#include "tests/envs/scratch.h"
#include "trainer/learn/algorithm_config.h"
#include "trainer/learn/batch_loss.h"
#include "trainer/learn/learner.h"
#include "trainer/sft/tiny_model.h"

namespace tandem::trainer {
namespace {

using testing::HasSubstr;

model::ModelConfig taught_config(int layers, int vocabulary = 50) {
  model::ModelConfig config;
  config.family = "llama";
  config.layers = layers;
  config.width = 64;
  config.heads = 1;
  config.kv_heads = 1;
  config.head_size = 64;
  config.mlp_width = 64;
  config.vocabulary = vocabulary;
  config.max_positions = 64;
  config.tied_embeddings = true;
  config.dtype = model::DType::kBF16;
  return config;
}

model::Weights taught_weights(int layers, uint64_t seed, bool for_training, int vocabulary = 50) {
  auto weights = std::move(*model::Weights::create(taught_config(layers, vocabulary), for_training));
  model::randomise(weights, seed);
  for (auto& value : weights.flat()) value = kernels::to_bf16(kernels::to_float(value) * 4);
  return weights;
}

Learner taught_learner(int layers, uint64_t seed, const BatchUpdates& updates = {}) {
  return std::move(*Learner::create(taught_weights(layers, seed, true), std::move(*kernels::Stream::cpu(1)),
                                    {.learning_rate = {.peak = 1e-3}, .max_pass_tokens = 40, .updates = updates}));
}

// Logprobs of a sample's trained tokens.
Rows logprobs_by(Learner& learner, const Sample& sample) {
  Rows logprobs;
  for (size_t i = 1; i < sample.tokens.size(); ++i) {
    if (!sample.trained[i]) continue;
    Sample alone = sample;
    alone.trained.assign(sample.tokens.size(), 0);
    alone.trained[i] = 1;
    logprobs.push_back(-*learner.evaluate(std::span(&alone, 1)));
  }
  return logprobs;
}

// Two groups of two samples of six tokens, each after a prompt of four; the sampler is `learner`.
std::vector<Sample> samples_by(Learner& learner) {
  Random random(11);
  std::vector<Sample> samples;
  for (uint64_t s = 0; s < 4; ++s) {
    Sample sample{.advantage = s % 2 == 0 ? 0.5 : -0.25, .group = s / 2};
    for (int i = 0; i < 10; ++i) {
      sample.tokens.push_back(i < 4 ? static_cast<int32_t>(s / 2 + 7) : static_cast<int32_t>(random.below(50)));
      sample.trained.push_back(i >= 4);
    }
    sample.versions.assign(10, 7);
    sample.logprobs.assign(10, 0);
    const Rows logprobs = logprobs_by(learner, sample);
    for (size_t i = 0; i < logprobs.size(); ++i) sample.logprobs[i + 4] = static_cast<float>(logprobs[i]);
    samples.push_back(std::move(sample));
  }
  return samples;
}

constexpr size_t kTaughtTokens = 24;

class Taught : public testing::Test {
 protected:
  // What `tandem loss` is given for them.
  LossBatch batch_by(Learner& learner) {
    LossBatch batch{.rows = samples_.size(), .length = kTaughtTokens / samples_.size()};
    batch.mask.assign(kTaughtTokens, 1);
    for (const Sample& sample : samples_) {
      const auto append = [](Rows& rows, const Rows& more) { rows.insert(rows.end(), more.begin(), more.end()); };
      append(batch.logprobs, logprobs_by(learner, sample));
      append(batch.teacher_logprobs, logprobs_by(teacher_, sample));
      batch.rollout_logprobs.insert(batch.rollout_logprobs.end(), sample.logprobs.begin() + 4, sample.logprobs.end());
      batch.groups.push_back(static_cast<int64_t>(*sample.group));
    }
    return batch;
  }
  // As the trainer has them: advantages of whole samples, or rewards on the last token.
  void add_credit(LossBatch& batch, const Algorithm& algorithm) const {
    const bool whole = is_of_whole_batch(algorithm);
    (whole ? batch.rewards : batch.advantages).assign(kTaughtTokens, 0);
    for (size_t i = 0; i < kTaughtTokens; ++i) {
      const double credit = samples_[i / batch.length].advantage;
      if (!whole) batch.advantages[i] = credit;
      if (whole && (i + 1) % batch.length == 0) batch.rewards[i] = credit;
    }
  }
  double kl() {
    double sum = 0;
    for (const Sample& sample : samples_) {
      const Rows teachers = logprobs_by(teacher_, sample);
      for (size_t i = 0; i < teachers.size(); ++i) sum += sample.logprobs[i + 4] - teachers[i];
    }
    return sum / kTaughtTokens;
  }

  Learner start_ = taught_learner(1, 1), teacher_ = taught_learner(2, 2);
  const std::vector<Sample> samples_ = samples_by(start_);
};

// The teacher has another shape than the model. Steps with one update, of the whole batch, and with several.
TEST_F(Taught, steps_are_taken_by_the_loss_that_is_printed) {
  const double distance = kl();
  EXPECT_GT(std::abs(distance), 0.01);
  for (const char* text : {R"({"advantage": "distill"})", R"({"name": "dr_grpo", "teacher": {"weight": 0.25}})",
                           R"({"name": "grpo", "advantage": "distill", "teacher": {"weight": 2, "clamp": 0.125}})",
                           R"({"name": "grpo", "correction": {"kind": "tis"}, "teacher": {"weight": 0.5}})",
                           R"({"name": "reinforce++", "teacher": {"weight": 0.5}})",
                           R"({"name": "grpo", "kl": {"estimator": "k3", "coefficient": 0.1, "in_reward": true}})",
                           R"({"name": "clip_cov", "clip_cov": {"share": 0.5, "low": 0, "high": 1000}})"}) {
    SCOPED_TRACE(text);
    const auto algorithm = *algorithm_from_json(Json::parse(text));
    for (const int epochs : {1, 2}) {
      Learner learner = taught_learner(1, 1, {.epochs = epochs});
      ASSERT_TRUE(learner.prepare(algorithm));
      ASSERT_TRUE(learner.keep_teacher(taught_weights(2, 2, false)));
      LossBatch batch = batch_by(start_);
      if (needs_reference(algorithm)) batch.ref_logprobs = batch.logprobs;
      if (epochs > 1 || algorithm.correction.kind != Correction::Kind::kNone) batch.old_logprobs = batch.logprobs;
      add_credit(batch, algorithm);
      const auto expected = batch_loss(batch, algorithm, {}, 8);
      ASSERT_TRUE(expected.has_value()) << expected.error().to_string();
      const auto step = learner.reinforce(samples_, algorithm, 7);
      ASSERT_TRUE(step.has_value()) << step.error().to_string();
      const double loss = epochs > 1 ? step->updates[0].loss : step->loss;
      EXPECT_NEAR(loss, expected->loss, 1e-12 * std::max(1.0, std::abs(expected->loss)));
      EXPECT_GT(step->grad_norm, 0);
      EXPECT_NEAR(step->of_loss.at("teacher_kl"), distance, 1e-12);
      EXPECT_EQ(step->of_loss.at("teacher_unlikely"), expected->metrics.at("teacher_unlikely"));

      // Without the teacher it is another step.
      batch.teacher_logprobs.clear();
      if (algorithm.advantage != AdvantageKind::kDistill) {
        EXPECT_GT(std::abs(batch_loss(batch, algorithm, {}, 8)->loss - expected->loss), 1e-6);
      }
    }
  }
}

// Of a teacher that was asked elsewhere; where it was not, no step is taken.
TEST_F(Taught, logprobs_that_samples_bring_are_those_of_the_teacher) {
  auto told = samples_;
  for (Sample& sample : told) {
    sample.teacher_logprobs.assign(sample.tokens.size(), 0);
    const Rows logprobs = logprobs_by(teacher_, sample);
    for (size_t i = 0; i < logprobs.size(); ++i) sample.teacher_logprobs[i + 4] = static_cast<float>(logprobs[i]);
  }
  for (const char* text :
       {R"({"advantage": "distill"})", R"({"name": "grpo", "teacher": {"weight": 0.5, "clamp": 0.5}})",
        R"({"name": "reinforce++", "teacher": {"weight": 0.5}})"}) {
    auto algorithm = *algorithm_from_json(Json::parse(text));
    for (const int epochs : {1, 2}) {
      SCOPED_TRACE(text);
      algorithm.teacher.endpoint.url = "";
      Learner own = taught_learner(1, 1, {.epochs = epochs}), other = taught_learner(1, 1, {.epochs = epochs});
      for (Learner* learner : {&own, &other}) ASSERT_TRUE(learner->prepare(algorithm));
      ASSERT_TRUE(own.keep_teacher(taught_weights(2, 2, false)));
      const auto expected = own.reinforce(samples_, algorithm, 7);
      algorithm.teacher.endpoint.url = "http://x/v1";
      const auto refused = other.reinforce(samples_, algorithm, 7);
      ASSERT_FALSE(refused.has_value());
      EXPECT_EQ(refused.error().code(), Code::kInternal);
      EXPECT_THAT(refused.error().message(), HasSubstr("sample 0 lacks logprobs of the teacher"));
      const auto step = other.reinforce(told, algorithm, 7);
      ASSERT_TRUE(step.has_value()) << step.error().to_string();
      EXPECT_EQ(step->loss, expected->loss);
      EXPECT_EQ(step->of_loss, expected->of_loss);
      EXPECT_TRUE(std::ranges::equal(own.weights().flat(), other.weights().flat(),
                                     [](auto a, auto b) { return kernels::to_float(a) == kernels::to_float(b); }));
    }
  }
}

// Nothing but the teacher: in expectation over what the policy says the distance falls; over a fixed batch the tokens
// that the teacher likes better come to be likelier, and the others less likely.
TEST_F(Taught, tokens_move_to_where_the_teacher_has_them) {
  const auto algorithm = *algorithm_from_json(Json::parse(R"({"advantage": "distill"})"));
  Learner learner = taught_learner(1, 1);
  ASSERT_TRUE(learner.keep_teacher(taught_weights(2, 2, false)));
  double before = 0, after = 0;
  const auto agreement = [&] {
    const LossBatch batch = batch_by(learner);
    double sum = 0;
    for (size_t i = 0; i < kTaughtTokens; ++i)
      sum += (batch.teacher_logprobs[i] - batch.rollout_logprobs[i]) * batch.logprobs[i];
    return sum;
  };
  before = agreement();
  ASSERT_TRUE(learner.reinforce(samples_, algorithm, 7));
  after = agreement();
  EXPECT_GT(after, before);
}

TEST_F(Taught, a_teacher_that_is_the_sampler_moves_nothing) {
  const auto algorithm = *algorithm_from_json(Json::parse(R"({"advantage": "distill"})"));
  Learner learner = taught_learner(1, 1);
  ASSERT_TRUE(learner.keep_teacher(taught_weights(1, 1, false)));
  auto samples = samples_;
  for (Sample& sample : samples) sample.advantage = 0;  // as the coordinator has it for distill
  const auto step = learner.reinforce(samples, algorithm, 7);
  ASSERT_TRUE(step.has_value());
  EXPECT_EQ(step->of_loss.at("teacher_kl"), 0);
  EXPECT_EQ(step->grad_norm, 0);
}

TEST_F(Taught, a_teacher_with_fewer_tokens_is_refused) {
  Learner learner = taught_learner(1, 1);
  EXPECT_THAT(learner.keep_teacher(taught_weights(1, 1, false, 49)).message(),
              HasSubstr("the teacher has 49 tokens, and the model 50"));
  EXPECT_TRUE(learner.keep_teacher(taught_weights(1, 1, false, 64)));
}

TEST(TeacherTerm, is_missing_only_where_it_is_needed) {
  const LossBatch batch{.rows = 1, .length = 1, .logprobs = {-1}, .mask = {1}, .advantages = {}};
  const auto message = [](const LossBatch& given, const char* text) {
    return batch_loss(given, *algorithm_from_json(Json::parse(text))).error().message();
  };
  EXPECT_THAT(message(batch, R"({"advantage": "distill"})"), HasSubstr("\"teacher_logprobs\""));
  LossBatch rewarded = batch;
  rewarded.rewards = {1};
  rewarded.groups = {0};
  EXPECT_THAT(message(rewarded, R"({"teacher": {"path": "x"}})"), HasSubstr("\"teacher_logprobs\""));
  EXPECT_TRUE(batch_loss(rewarded, *algorithm_from_json(Json::object())).has_value());
}

TEST(TeacherDirectory, has_the_tokenizer_of_the_model) {
  envs::Scratch scratch;
  const fs::path model = scratch.path / "model", teacher = scratch.path / "teacher", other = scratch.path / "other";
  ASSERT_TRUE(make_tiny_model(model, {.warm_steps = 0}, [](const std::string&) {}));
  for (const fs::path& copy : {teacher, other}) fs::copy(model, copy, fs::copy_options::recursive);
  fs::copy_file(TANDEM_SOURCE_DIR "/tests/golden/tokenizers/llama3/tokenizer.json", other / "tokenizer.json",
                fs::copy_options::overwrite_existing);
  EXPECT_TRUE(check_teacher(teacher, model, 16));
  EXPECT_TRUE(load_teacher(teacher, model, model::WeightFormat::kBf16).has_value());

  const Status longer = check_teacher(teacher, model, 1 << 30);
  EXPECT_THAT(longer.message(), HasSubstr("rollout.max_tokens is 1073741824"));
  EXPECT_THAT(longer.message(), HasSubstr(teacher.string()));
  const Status foreign = check_teacher(other, model);
  EXPECT_THAT(foreign.message(), HasSubstr(other.string()));
  EXPECT_THAT(foreign.message(), HasSubstr("has another tokenizer than the model " + model.string()));
  EXPECT_FALSE(load_teacher(other, model, model::WeightFormat::kBf16).has_value());
  EXPECT_FALSE(check_teacher(scratch.path / "none", model));

  // Fewer rows for the same tokens.
  Json config = *parse_json(scratch.get("teacher/config.json"));
  const int tokens = config["vocab_size"].get<int>();
  config["vocab_size"] = tokens - 1;
  scratch.put("teacher/config.json", config.dump());
  EXPECT_THAT(check_teacher(teacher, model).message(),
              HasSubstr(std::to_string(tokens - 1) + " tokens, fewer than the " + std::to_string(tokens)));
}

}  // namespace
}  // namespace tandem::trainer
