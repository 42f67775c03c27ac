// The head of a reward model on disk, and rewards of the model with it.
#include "model/reward_head.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cmath>

#include "model/reward_model.h"
#include "model/safetensors.h"

namespace tandem::model {
namespace {

using testing::HasSubstr;

const fs::path kRewardedModel = fs::path(TANDEM_SOURCE_DIR) / "tests" / "golden" / "models" / "llama";

class RewardHeads : public testing::Test {
 protected:
  RewardHeads() : folder_(fs::path(testing::TempDir()) / fmt::format("reward-heads-{}", ::getpid())) {
    fs::remove_all(folder_);
    EXPECT_TRUE(make_directories(folder_));
  }
  ~RewardHeads() override { fs::remove_all(folder_); }
  std::string refusal(int width) const {
    const auto head = read_reward_head(folder_, width);
    return head ? "taken" : head.error().to_string();
  }
  // Tensors of floats with these shapes.
  void write(std::span<const std::pair<const char*, std::vector<int64_t>>> tensors, DType dtype = DType::kF32,
             float number = 1) const {
    const std::vector<float> numbers(64, number);
    std::vector<NamedTensor> named;
    for (const auto& [name, shape] : tensors) {
      size_t count = static_cast<size_t>(bytes_of(dtype));
      for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
      named.push_back(
          {name, {.dtype = dtype, .shape = shape, .bytes = std::as_bytes(std::span(numbers)).first(count)}});
    }
    ASSERT_TRUE(write_safetensors(folder_ / kRewardHeadFile, named));
  }
  const fs::path folder_;
};

using Shapes = std::vector<std::pair<const char*, std::vector<int64_t>>>;

TEST_F(RewardHeads, is_read_as_it_was_written) {
  const auto none = read_reward_head(folder_, 3);
  ASSERT_TRUE(none);
  EXPECT_FALSE(*none) << "a model without one is no mistake";
  const RewardHead head{.weight = {0.5f, -1, 0.1f, 0.25f}, .notes = {{"tandem.tool_calls", "text"}}};
  ASSERT_TRUE(write_reward_head(head, folder_));
  const auto read = read_reward_head(folder_, 3);
  ASSERT_TRUE(read && *read) << refusal(3);
  EXPECT_EQ((*read)->weight, head.weight);
  EXPECT_EQ((*read)->notes, head.notes);
  EXPECT_EQ(head.reward(std::array{2.0f, 1.0f, 0.0f}), 0.25);
}

TEST_F(RewardHeads, what_is_none_is_refused_by_file_and_place) {
  write(Shapes{{"weight", {1, 4}}, {"bias", {1}}});
  EXPECT_THAT(refusal(3), HasSubstr("weight has the shape [1, 4], and a reward head of this model [1, 3]"));
  EXPECT_THAT(refusal(3), HasSubstr((folder_ / kRewardHeadFile).string()));
  write(Shapes{{"weight", {3}}, {"bias", {1}}});
  EXPECT_THAT(refusal(3), HasSubstr("weight has the shape [3]"));
  write(Shapes{{"weight", {1, 3}}});
  EXPECT_THAT(refusal(3), HasSubstr("bias"));
  write(Shapes{{"weight", {1, 3}}, {"bias", {1}}, {"score", {1}}});
  EXPECT_THAT(refusal(3), HasSubstr("has a tensor score"));
  write(Shapes{{"weight", {1, 3}}, {"bias", {1}}}, DType::kBF16);
  EXPECT_THAT(refusal(3), HasSubstr("has the format BF16, not F32"));
  write(Shapes{{"weight", {1, 3}}, {"bias", {1}}}, DType::kF32, std::nanf(""));
  EXPECT_THAT(refusal(3), HasSubstr("weight[0] is nan"));
  ASSERT_TRUE(write_file(folder_ / kRewardHeadFile, "{}"));
  EXPECT_THAT(refusal(3), HasSubstr((folder_ / kRewardHeadFile).string()));
}

TEST_F(RewardHeads, rewards_depend_on_their_tokens_alone) {
  auto stream = std::move(*kernels::Stream::cpu(2));
  auto weights = std::move(*load_weights(kRewardedModel, false));
  ASSERT_TRUE(weights.pack(stream));
  const int width = weights.config().width, vocabulary = weights.config().vocabulary;
  RewardHead head;
  for (int i = 0; i <= width; ++i) head.weight.push_back(std::sin(static_cast<float>(i)));
  auto model = std::move(
      *RewardModel::create(std::make_shared<const Weights>(std::move(weights)), std::move(stream), std::move(head)));
  const auto tokens_of = [&](int count, int step) {
    std::vector<int32_t> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back((7 + i * step) % vocabulary);
    return tokens;
  };
  const int longest = model.config().max_positions;
  std::vector<double> first;
  for (const int count : {1, longest, 5, 17}) first.push_back(*model.reward(tokens_of(count, 3)));
  for (const int count : {17, 5, 1}) {
    EXPECT_EQ(*model.reward(tokens_of(count, 3)), first[count == 17 ? 3 : count == 5 ? 2 : 0]);
    EXPECT_NE(*model.reward(tokens_of(count, 3)), *model.reward(tokens_of(count + 1, 3)));
  }
  EXPECT_EQ(*model.reward(tokens_of(longest, 3)), first[1]);

  EXPECT_THAT(model.reward({}).error().to_string(), HasSubstr("no token"));
  EXPECT_THAT(model.reward(tokens_of(longest + 1, 3)).error().to_string(), HasSubstr("the model takes"));
  EXPECT_THAT(model.reward(std::array{vocabulary}).error().to_string(), HasSubstr("token 0 is"));
}

}  // namespace
}  // namespace tandem::model
