// What ranks tell each other of the samples of a step.
#include "trainer/team.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/collectives/processes.h"

namespace tandem::trainer {
namespace {

std::vector<Sample> told_samples() {
  return {{.tokens = {1, 2, 3},
           .trained = {0, 1, 1},
           .logprobs = {0, -1, -2},
           .versions = {0, 4, 5},
           .advantage = -0.5,
           .group = 7,
           .turn_rewards = {0.5, -1},
           .part = 3,
           .later_segments = {1},
           .routes = {.shape = {.layers = 2, .top_k = 1, .experts = 300},
                      .recorded = {1, 0, 1},
                      .ids = {0x2b, 1, 7, 0, 0, 0, 0, 0, 3, 0, 4, 0}},
           .kept = {.vocabulary = 10, .counts = {0, 2, 1}, .ids = {2, 9, 3}},
           .metrics = {{"turns", 2}, {"terms.tests", 0.1}},
           .trunk = 6,
           .trunk_tokens = 2,
           .teacher_logprobs = {0, -0.5, -3},
           .hint = {.at = 0, .replaced = 1, .tokens = {8, 9}}},
          {.tokens = {9}, .trained = {1}, .logprobs = {}, .versions = {}, .advantage = 2, .group = {}},
          {.tokens = {}, .trained = {}, .logprobs = {}, .versions = {}, .advantage = 0, .group = 0}};
}

void expect_told(const std::vector<Sample>& got) {
  const auto expected = told_samples();
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].tokens, expected[i].tokens);
    EXPECT_EQ(got[i].trained, expected[i].trained);
    EXPECT_EQ(got[i].logprobs, expected[i].logprobs);
    EXPECT_EQ(got[i].versions, expected[i].versions);
    EXPECT_EQ(got[i].advantage, expected[i].advantage);
    EXPECT_EQ(got[i].group, expected[i].group);
    EXPECT_EQ(got[i].turn_rewards, expected[i].turn_rewards);
    EXPECT_EQ(got[i].part, expected[i].part);
    EXPECT_EQ(got[i].later_segments, expected[i].later_segments);
    EXPECT_EQ(got[i].routes, expected[i].routes);
    EXPECT_EQ(got[i].kept, expected[i].kept);
    EXPECT_EQ(got[i].metrics, expected[i].metrics);
    EXPECT_EQ(got[i].trunk, expected[i].trunk);
    EXPECT_EQ(got[i].trunk_tokens, expected[i].trunk_tokens);
    EXPECT_EQ(got[i].teacher_logprobs, expected[i].teacher_logprobs);
    EXPECT_EQ(got[i].hint, expected[i].hint);
  }
}

TEST(Team, samples_come_back_from_their_bytes_and_from_no_part_of_them) {
  const auto bytes = pack(told_samples());
  const auto got = unpack(bytes);
  ASSERT_TRUE(got);
  expect_told(*got);
  size_t whole = 0;
  for (size_t length = 0; length < bytes.size(); ++length) {
    const auto cut = unpack(std::span(bytes).first(length));
    EXPECT_TRUE(cut || cut.error().code() == Code::kCorrupt);
    whole += cut ? 1 : 0;
  }
  EXPECT_EQ(whole, 3u) << "cut between samples";
  auto huge = bytes;
  std::fill_n(huge.begin(), 8, std::byte{0xff});  // the number of tokens
  EXPECT_EQ(unpack(huge).error().code(), Code::kCorrupt);
}

TEST(Team, ranks_hear_what_the_first_says_and_find_each_other_again) {
  const collectives::GroupFolder folder;
  const auto never = [] { return false; };
  const TeamSettings first{.folder = folder.path(), .rank = 0, .ranks = 2}, second{folder.path(), 1, 2};
  std::thread other([&] {
    for (int life = 0; life < 2; ++life) {
      auto ranks = meet(second, never);
      ASSERT_TRUE(ranks) << ranks.error().to_string();
      const auto order = hear(*ranks);
      ASSERT_TRUE(order) << order.error().to_string();
      EXPECT_EQ(order->kind, Order::Kind::kTrain);
      EXPECT_EQ(order->version, 41u);
      expect_told(order->samples);
      const auto rest = hear(*ranks);
      ASSERT_FALSE(rest);
      EXPECT_EQ(rest.error().code(), Code::kUnavailable) << "the first rank is gone";
    }
  });
  for (int life = 0; life < 2; ++life) {
    auto ranks = meet(first, never);
    EXPECT_TRUE(ranks);
    if (!ranks) break;
    EXPECT_TRUE(say(*ranks, {.kind = Order::Kind::kTrain, .version = 41, .samples = told_samples()}));
  }
  other.join();
}

TEST(Team, who_is_asked_to_stop_waits_for_nobody_and_settings_that_cannot_be_are_refused) {
  const collectives::GroupFolder folder;
  const auto stopped = meet({.folder = folder.path(), .rank = 0, .ranks = 2}, [] { return true; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code(), Code::kCancelled);
  const auto refused = meet({.folder = folder.path(), .rank = 2, .ranks = 2}, [] { return false; });
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kInvalid);
}

}  // namespace
}  // namespace tandem::trainer
