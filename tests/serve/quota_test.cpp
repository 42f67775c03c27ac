#include "serve/quota.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace tandem::serve {
namespace {

using namespace std::chrono_literals;

const Time kStart = Time{} + 1000s;

TEST(Quota, requests_of_a_minute_are_spread_over_it_after_the_first_ones) {
  Quota quota;
  const KeyTerms key{.name = "a", .requests_per_minute = 6};
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(quota.ask(key, kStart)) << i;
  const auto refused = quota.ask(key, kStart);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->says, "6 requests a minute");
  EXPECT_NEAR(to_seconds(refused->retry_after), 10, 1e-6);
  EXPECT_TRUE(quota.ask(key, kStart + 9s));
  EXPECT_FALSE(quota.ask(key, kStart + 10001ms));
  EXPECT_FALSE(quota.ask({.name = "b", .requests_per_minute = 6}, kStart)) << "another key has its own";
}

TEST(Quota, tokens_are_owed_and_nothing_begins_before_they_are_paid_off) {
  Quota quota;
  const KeyTerms key{.name = "a", .tokens_per_minute = 60};
  EXPECT_FALSE(quota.ask(key, kStart));
  EXPECT_FALSE(quota.ask(key, kStart)) << "tokens are known when a request has ended";
  quota.charge(key, 100, kStart);
  const auto refused = quota.ask(key, kStart);
  ASSERT_TRUE(refused);
  EXPECT_NEAR(to_seconds(refused->retry_after), 40, 1e-6);
  EXPECT_TRUE(quota.ask(key, kStart + 39s));
  EXPECT_FALSE(quota.ask(key, kStart + 41s));
}

TEST(Quota, the_longest_wait_of_all_limits_is_said) {
  Quota quota;
  const KeyTerms key{.name = "a", .requests_per_minute = 1, .tokens_per_minute = 60, .tokens_per_day = 100};
  EXPECT_FALSE(quota.ask(key, kStart));
  quota.charge(key, 200, kStart);
  const auto refused = quota.ask(key, kStart);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->says, "100 tokens a day");
  EXPECT_NEAR(to_seconds(refused->retry_after), 86400, 1e-3);
}

TEST(Quota, a_wait_of_centuries_is_still_a_long_one) {
  Quota quota;
  const KeyTerms key{.name = "a", .tokens_per_day = 1e-6};
  quota.charge(key, 1e6, kStart);
  const auto refused = quota.ask(key, kStart);
  ASSERT_TRUE(refused);
  EXPECT_GE(refused->retry_after, 24h * 365);
}

TEST(Quota, a_limit_that_changes_holds_from_then_on) {
  Quota quota;
  EXPECT_FALSE(quota.ask({.name = "a"}, kStart)) << "none";
  EXPECT_FALSE(quota.ask({.name = "a", .requests_per_minute = 1}, kStart));
  EXPECT_TRUE(quota.ask({.name = "a", .requests_per_minute = 1}, kStart));
  EXPECT_FALSE(quota.ask({.name = "a", .requests_per_minute = 600}, kStart + 1s)) << "refills at the new rate";
  EXPECT_FALSE(quota.ask({.name = "a"}, kStart + 1s));
}

TEST(Quota, what_was_charged_yesterday_counts_no_more) {
  Quota quota;
  const KeyTerms key{.name = "a", .tokens_per_day = 1000};
  quota.charge(key, 2000, kStart);
  EXPECT_TRUE(quota.ask(key, kStart + 12h));
  EXPECT_FALSE(quota.ask(key, kStart + 25h));
}

TEST(Quota, addresses_that_come_once_are_forgotten) {
  Quota quota;
  Time now = kStart;
  for (int i = 0; i < 100'000; ++i, now += 10ms)
    EXPECT_FALSE(quota.ask({.name = std::to_string(i), .requests_per_minute = 600}, now));
  EXPECT_LT(quota.accounts(), 3000u);
}

TEST(Quota, no_more_than_the_limit_and_what_it_holds_passes_in_any_stretch) {
  Random random(3);
  Quota quota;
  const KeyTerms key{.name = "a", .requests_per_minute = 30};
  Time now = kStart;
  int passed = 0;
  for (int i = 0; i < 5000; ++i) {
    now += from_seconds(random.uniform() * 0.5);
    passed += !quota.ask(key, now);
  }
  EXPECT_LE(passed, 30 + to_seconds(now - kStart) / 60 * 30 + 1);
  EXPECT_GE(passed, to_seconds(now - kStart) / 60 * 30 - 1);
}

}  // namespace
}  // namespace tandem::serve
