// What is said beforehand about memory is what is taken, for every family and format.
#include "tests/model/engine_logprobs.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {
namespace {

class MemoryOfFamily : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Golden, MemoryOfFamily, testing::ValuesIn(model::kGoldenModels), model::model_name);

constexpr model::WeightFormat kTrainable[] = {model::WeightFormat::kBf16, model::WeightFormat::kFp8,
                                              model::WeightFormat::kMxfp8};

TEST_P(MemoryOfFamily, weights_take_what_is_said_beforehand) {
  auto stream = std::move(*kernels::Stream::cpu(2));
  const auto expect = [&](bool for_training, model::WeightFormat format) {
    SCOPED_TRACE(testing::Message() << model::to_string(format) << (for_training ? ", for training" : ""));
    auto weights = std::move(*model::load_weights(model::golden_model(GetParam()), for_training, format));
    ASSERT_TRUE(weights.pack(stream));
    const auto said = *model::Weights::memory_of(weights.config(), for_training, format);
    EXPECT_EQ(said, weights.memory());
    EXPECT_GT(said.panels, said.flat / 2);
  };
  for (const auto format : kTrainable) {
    expect(true, format);
    expect(false, format);
  }
  expect(false, model::WeightFormat::kFloat32);
}

TEST_P(MemoryOfFamily, a_pass_keeps_of_each_row_what_is_said_beforehand) {
  auto stream = std::move(*kernels::Stream::cpu(2));
  auto weights = std::move(*model::load_weights(model::golden_model(GetParam()), true));
  ASSERT_TRUE(weights.pack(stream));
  // As many rows as memory is handed out in steps of.
  std::vector<int32_t> tokens(64);
  std::iota(tokens.begin(), tokens.end(), 3);
  const std::span<const int32_t> view = tokens;
  Tape tape(weights.config(), weights.config().max_positions);
  ASSERT_TRUE(tape.forward(stream, weights, merge(std::span(&view, 1)), {}));
  EXPECT_EQ(*Tape::row_bytes_of(weights.config()) * tokens.size(), tape.kept_bytes());
}

// A learner that has taken a step in which every slot had a part.
void expect_what_was_said(model::WeightFormat format, const OptimizerSettings& settings, bool with_reference,
                          const char* teacher = nullptr) {
  auto learner = *Learner::create(std::move(*model::load_weights(model::golden_model("qwen3"), true, format)),
                                  std::move(*kernels::Stream::cpu(2)), settings);
  if (with_reference) {
    ASSERT_TRUE(learner.keep_reference());
  }
  std::optional<model::ModelConfig> taught_by;
  if (teacher != nullptr) {
    auto weights = std::move(*model::load_weights(model::golden_model(teacher), false, format));
    taught_by = weights.config();
    const Status kept = learner.keep_teacher(std::move(weights));
    ASSERT_TRUE(kept) << kept.to_string();
  }
  std::vector<Sample> samples;
  for (int i = 0; i < settings.slots; ++i) {
    Sample sample{.tokens = {1, 2, 3, 4 + i}, .trained = {0, 1, 1, 1}, .advantage = i % 2 == 0 ? 1.0 : -0.5};
    sample.logprobs.assign(4, -2);
    sample.versions.assign(4, 0);
    samples.push_back(std::move(sample));
  }
  Algorithm algorithm;
  algorithm.teacher.weight = 0.01;  // so that no advantage changes its sign, and a clip takes no gradient
  ASSERT_TRUE(learner.reinforce(samples, algorithm, 0));
  const auto said = *Learner::memory_of(learner.weights().config(), format, settings, with_reference, 1,
                                        taught_by ? &*taught_by : nullptr);
  const auto taken = learner.memory();
  EXPECT_EQ(said.masters_and_gradients, taken.masters_and_gradients);
  EXPECT_EQ(said.optimizer, taken.optimizer);
  EXPECT_EQ(said.slots, taken.slots);
  EXPECT_EQ(said.weights, taken.weights);
  EXPECT_EQ(said.previous, taken.previous);
  EXPECT_EQ(said.reference, taken.reference);
  EXPECT_EQ(said.teacher, taken.teacher);
  EXPECT_EQ(said.teacher > 0, teacher != nullptr);
  EXPECT_EQ(said, taken);
}

TEST(MemoryOfLearner, is_what_is_said_beforehand) {
  expect_what_was_said(model::WeightFormat::kBf16, {}, true);
  expect_what_was_said(model::WeightFormat::kFp8, {.moments = Moments::kBf16, .slots = 4}, false);
  expect_what_was_said(model::WeightFormat::kMxfp8, {.kind = OptimizerKind::kMuon, .slots = 2}, false);
  expect_what_was_said(model::WeightFormat::kBf16, {.low_rank = {.rank = 2}}, true);
  expect_what_was_said(model::WeightFormat::kBf16, {}, false, "qwen3-moe");
  expect_what_was_said(model::WeightFormat::kFp8, {.slots = 2}, true, "qwen3");
}

}  // namespace
}  // namespace tandem::trainer
