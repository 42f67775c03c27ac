// Virtual slots: dealing is a function of the batch, and any cut of the tree has the same bits.
#include "trainer/learn/slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/buffer.h"
#include "base/random.h"

namespace tandem::trainer {
namespace {

using Dealt = std::vector<std::vector<size_t>>;

std::vector<SlotGroup> groups_with(const std::vector<uint64_t>& tokens) {
  std::vector<SlotGroup> groups;
  for (const uint64_t count : tokens)
    groups.push_back({.begin = groups.size(), .end = groups.size() + 1, .tokens = count});
  return groups;
}

TEST(Slots, the_longest_groups_are_dealt_first_and_each_slot_keeps_the_order_of_the_batch) {
  EXPECT_EQ(deal(groups_with({10, 50, 20, 30, 40}), 2), (Dealt{{0, 1, 2}, {3, 4}}));
  EXPECT_EQ(deal(groups_with({7, 7, 7}), 2), (Dealt{{0, 2}, {1}}));
  EXPECT_EQ(deal(groups_with({7, 9}), 4), (Dealt{{1}, {0}, {}, {}}));
  EXPECT_EQ(deal({}, 2), (Dealt{{}, {}}));
}

TEST(Slots, their_number_is_a_power_of_two) {
  for (const int slots : {1, 2, 8, 1024}) EXPECT_TRUE(check_slots(slots).ok()) << slots;
  for (const int slots : {-1, 0, 3, 12, 2048}) EXPECT_EQ(check_slots(slots).code(), Code::kInvalid) << slots;
}

// Two parameters of 5 and 3 numbers with 4 of nobody between them.
model::ParameterLayout layout() {
  model::ParameterLayout made;
  made.parameters.resize(2);
  made.parameters[0].rows = 1;
  made.parameters[0].columns = 5;
  made.parameters[1].rows = 1;
  made.parameters[1].columns = 3;
  made.parameters[1].offset = 9;
  made.elements = 12;
  return made;
}

class SlotSumTest : public testing::Test {
 protected:
  static constexpr size_t kSlots = 8;

  SlotSumTest() {
    Random random(5);
    for (auto& slot : gradients_)
      for (const size_t i : {0, 1, 2, 3, 4, 9, 10, 11}) slot[i] = static_cast<float>(random.normal()) * 1e3f;
  }

  Result<bool> put(size_t slot, const Slice& slice) const {
    const auto into = slice.host<float>();
    for (size_t i = 0; i < into.size(); ++i) {
      EXPECT_EQ(into[i], 0) << "slot " << slot << " does not begin at zero";
      into[i] += gradients_[slot][i];
    }
    return true;
  }

  // The sum of the slots from `first`, as a rank that owns that sub-tree sums them.
  std::vector<float> sum(size_t first, const std::vector<bool>& used) const {
    SlotSum tree(layout(), {});
    Buffer<float> into(12);
    for (int again = 0; again < 2; ++again) {  // what it keeps between uses are zeros
      std::fill(into.begin(), into.end(), 0.0f);
      const auto status =
          tree.add(slice(into), used, [&](size_t slot, const Slice& buffer) { return put(first + slot, buffer); });
      EXPECT_TRUE(status) << status.error().message();
    }
    return {into.begin(), into.end()};
  }

  static Slice slice(Buffer<float>& buffer) {
    return model::slice_of("gradients", std::span(buffer.data(), buffer.size()));
  }

  std::array<std::array<float, 12>, kSlots> gradients_{};
};

TEST_F(SlotSumTest, sub_trees_of_any_number_of_ranks_add_up_to_the_same_bits) {
  const auto whole = sum(0, std::vector<bool>(kSlots, true));
  for (const size_t ranks : {2, 4, 8}) {
    std::vector<std::vector<float>> parts;
    for (size_t rank = 0; rank < ranks; ++rank)
      parts.push_back(sum(rank * kSlots / ranks, std::vector<bool>(kSlots / ranks, true)));
    while (parts.size() > 1) {
      for (size_t pair = 0; pair < parts.size() / 2; ++pair)
        for (size_t i = 0; i < 12; ++i) parts[pair][i] = parts[2 * pair][i] + parts[2 * pair + 1][i];
      parts.resize(parts.size() / 2);
    }
    EXPECT_EQ(parts[0], whole) << ranks << " ranks";
  }
}

TEST_F(SlotSumTest, slots_are_added_as_a_tree) {
  const auto& g = gradients_;
  const auto whole = sum(0, std::vector<bool>(kSlots, true));
  for (size_t i = 0; i < 12; ++i)
    EXPECT_EQ(whole[i], ((g[0][i] + g[1][i]) + (g[2][i] + g[3][i])) + ((g[4][i] + g[5][i]) + (g[6][i] + g[7][i]))) << i;
}

TEST_F(SlotSumTest, slots_without_samples_are_not_asked_and_change_nothing) {
  std::vector<bool> used(kSlots, false);
  used[2] = used[5] = true;
  const auto some = sum(0, used);
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(some[i], gradients_[2][i] + gradients_[5][i]) << i;
}

TEST_F(SlotSumTest, after_an_error_the_next_sum_begins_at_zero) {
  SlotSum tree(layout(), {});
  Buffer<float> into(12);
  const std::vector<bool> used(kSlots, true);
  const auto failing = tree.add(slice(into), used, [&](size_t slot, const Slice& buffer) -> Result<bool> {
    if (slot == 6) return fail(Status::unavailable("no more"));
    return put(slot, buffer);
  });
  ASSERT_FALSE(failing);
  EXPECT_EQ(failing.error().code(), Code::kUnavailable);
  std::fill(into.begin(), into.end(), 0.0f);
  EXPECT_TRUE(tree.add(slice(into), used, [&](size_t slot, const Slice& buffer) { return put(slot, buffer); }));
  EXPECT_EQ(std::vector<float>(into.begin(), into.end()), sum(0, used));
}

}  // namespace
}  // namespace tandem::trainer
