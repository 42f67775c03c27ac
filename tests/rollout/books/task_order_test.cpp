#include "rollout/books/task_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace tandem::rollout {
namespace {

std::vector<uint64_t> draw(TaskOrder& order, const std::string& kind, int count) {
  std::vector<uint64_t> drawn;
  for (int i = 0; i < count; ++i) drawn.push_back(order.next(kind));
  return drawn;
}

TEST(TaskOrder, every_task_comes_once_before_any_comes_again) {
  TaskOrder order({{"a", {.train = 5, .heldout = 2}}, {"b", {.train = 1, .heldout = 0}}}, 7);
  for (int round = 0; round < 4; ++round) {
    EXPECT_THAT(draw(order, "a", 5), testing::UnorderedElementsAre(0, 1, 2, 3, 4));
    EXPECT_EQ(order.next("b"), 0u);
  }
}

TEST(TaskOrder, is_a_function_of_the_seed_and_differs_from_round_to_round) {
  const CountsByKind counts = {{"a", {.train = 30, .heldout = 0}}};
  TaskOrder one(counts, 7), same(counts, 7), other(counts, 8);
  const auto first = draw(one, "a", 30);
  EXPECT_EQ(draw(same, "a", 30), first);
  EXPECT_NE(draw(other, "a", 30), first);
  EXPECT_NE(draw(one, "a", 30), first);
}

TEST(TaskOrder, kinds_without_training_tasks_are_not_drawn_from) {
  const CountsByKind counts = {{"a", {.train = 0, .heldout = 3}}, {"b", {.train = 2, .heldout = 0}}};
  EXPECT_THAT(trainable({"a", "b"}, counts), testing::ElementsAre("b"));
  EXPECT_THAT(trainable({"a", "b"}, {}), testing::ElementsAre("a", "b"));
}

}  // namespace
}  // namespace tandem::rollout
