#include "rollout/engine/prefix_tree.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "base/random.h"

namespace tandem::rollout {
namespace {

std::vector<int32_t> counted(int32_t first, int count) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(PrefixTree, finds_whole_pages_and_the_beginning_of_the_next_a_step_later) {
  PrefixTree tree(4);
  EXPECT_EQ(tree.insert(counted(0, 10), std::vector<int>{7, 8, 9}, true, 3), (std::vector<int>{7, 8}));
  EXPECT_EQ(tree.find(counted(0, 20), 3).coming, 10) << "of the step in which they were entered";
  EXPECT_TRUE(tree.find(counted(0, 20), 3).pages.empty());
  const auto match = tree.find(counted(0, 20), 4);
  EXPECT_EQ(match.pages, (std::vector<int>{7, 8}));
  EXPECT_EQ(match.source, 9);
  EXPECT_EQ(match.copied, 2);
  EXPECT_EQ(match.coming, 10);
  auto parts = counted(0, 7);
  parts[6] = 99;
  EXPECT_EQ(tree.find(parts, 4).pages, (std::vector<int>{7}));
  EXPECT_EQ(tree.find(parts, 4).source, 8);
  EXPECT_EQ(tree.find(parts, 4).copied, 2);
  EXPECT_EQ(tree.find(counted(1, 7), 4).coming, 0);
}

TEST(PrefixTree, a_page_is_entered_once_and_its_tail_gives_way_to_it) {
  PrefixTree tree(4);
  EXPECT_TRUE(tree.insert(counted(0, 3), std::vector<int>{1}, true, 0).empty());
  EXPECT_EQ(tree.find(counted(0, 4), 1).copied, 3);
  EXPECT_EQ(tree.insert(counted(0, 4), std::vector<int>{1}, false, 1), (std::vector<int>{1}));
  EXPECT_TRUE(tree.insert(counted(0, 4), std::vector<int>{2}, false, 2).empty());
  EXPECT_EQ(tree.pages(), 1u);
  tree.forget_tail(1);
  EXPECT_EQ(tree.find(counted(0, 4), 3).pages, (std::vector<int>{1}));
}

TEST(PrefixTree, evicts_what_was_not_used_for_longest_and_nothing_that_others_follow) {
  PrefixTree tree(2);
  auto other = counted(0, 4);
  other[3] = 50;
  EXPECT_EQ(tree.insert(counted(0, 4), std::vector<int>{1, 2}, false, 0).size(), 2u);
  EXPECT_EQ(tree.insert(other, std::vector<int>{5, 3}, false, 0), (std::vector<int>{3}));
  EXPECT_EQ(tree.find(counted(0, 4), 1).pages, (std::vector<int>{1, 2}));
  const auto any = [](int) { return true; };
  EXPECT_EQ(tree.evict([](int page) { return page != 3; }), 2) << "3 is held";
  EXPECT_EQ(tree.evict(any), 3);
  EXPECT_EQ(tree.evict(any), 1);
  EXPECT_FALSE(tree.evict(any));
  EXPECT_EQ(tree.pages(), 0u);
}

// Beside what comparing with every text that was entered gives.
TEST(PrefixTree, finds_the_longest_common_prefix_of_all) {
  Random random(5);
  for (int round = 0; round < 200; ++round) {
    PrefixTree tree(4);
    std::vector<std::vector<int32_t>> texts;
    int page = 0;
    for (int i = 0; i < 20; ++i) {
      std::vector<int32_t> text(1 + random.below(17));
      for (auto& token : text) token = static_cast<int32_t>(random.below(2));
      std::vector<int> pages((text.size() + 3) / 4);
      for (int& each : pages) each = page++;
      tree.insert(text, pages, true, 0);
      texts.push_back(text);
    }
    for (int i = 0; i < 20; ++i) {
      std::vector<int32_t> text(1 + random.below(17));
      for (auto& token : text) token = static_cast<int32_t>(random.below(2));
      size_t longest = 0;
      for (const auto& other : texts) {
        size_t same = 0;
        while (same < std::min(text.size(), other.size()) && text[same] == other[same]) ++same;
        longest = std::max(longest, same);
      }
      const auto match = tree.find(text, 1);
      EXPECT_EQ(match.pages.size() * 4 + match.copied, longest);
      EXPECT_EQ(static_cast<size_t>(match.coming), longest);
    }
    const size_t whole = tree.pages();
    EXPECT_EQ(tree.clear().size(), whole);
    EXPECT_EQ(tree.find(texts[0], 1).coming, 0);
  }
}

}  // namespace
}  // namespace tandem::rollout
