#include "gateway/health.h"

#include <gtest/gtest.h>

namespace tandem::gateway {
namespace {

using namespace std::chrono_literals;

class HealthTest : public testing::Test {
 protected:
  HealthTest() { EXPECT_TRUE(health_.probed(true, now_)); }
  // So many are sent together and answered.
  void wave(int requests, Duration first_byte = 100ms, double usual = 0) {
    for (int i = 0; i < requests; ++i) health_.sent(0, now_);
    now_ += first_byte;
    for (int i = 0; i < requests; ++i) health_.answered(first_byte, usual);
    for (int i = 0; i < requests; ++i) health_.ended(to_seconds(first_byte));
  }
  Time now_{1h};
  Health health_{{.slots = 64}};
};

TEST_F(HealthTest, the_limit_doubles_with_each_wave_up_to_the_slots) {
  EXPECT_EQ(health_.limit(), 4);
  wave(4);
  EXPECT_EQ(health_.limit(), 8);
  wave(8);
  EXPECT_EQ(health_.limit(), 16);
  for (int i = 0; i < 5; ++i) wave(static_cast<int>(health_.limit()));
  EXPECT_EQ(health_.limit(), 64);
}

TEST_F(HealthTest, it_does_not_grow_where_it_does_not_bind_or_the_server_is_slower_than_others) {
  wave(1);
  EXPECT_EQ(health_.limit(), 4);
  wave(4, 1s, 0.4);
  EXPECT_EQ(health_.limit(), 4);
  wave(4, 700ms, 0.4);
  EXPECT_EQ(health_.limit(), 8);
}

TEST_F(HealthTest, a_refusal_halves_it_once_a_wave_and_is_waited_for) {
  wave(4);
  wave(8);
  for (int i = 0; i < 16; ++i) health_.sent(0, now_);
  for (int i = 0; i < 16; ++i) {
    EXPECT_FALSE(health_.failed(Failure::kOverloaded, 7s, now_));
    health_.ended(std::nullopt);
  }
  EXPECT_EQ(health_.limit(), 8);
  EXPECT_FALSE(health_.open(1, now_ + 6s));
  EXPECT_TRUE(health_.open(1, now_ + 7s));
  EXPECT_EQ(health_.opens_at(1, now_), now_ + 7s);
  // From there it grows by one a wave.
  now_ += 7s;
  wave(8);
  EXPECT_NEAR(health_.limit(), 9, 0.2);
}

TEST_F(HealthTest, three_failures_in_a_row_break_the_circuit_and_an_answer_begins_with_one_request) {
  wave(4);
  EXPECT_FALSE(health_.failed(Failure::kFaulty, {}, now_));
  EXPECT_FALSE(health_.failed(Failure::kSlow, {}, now_));
  wave(1);
  EXPECT_FALSE(health_.failed(Failure::kFaulty, {}, now_)) << "an answer lies between";
  EXPECT_FALSE(health_.failed(Failure::kFaulty, {}, now_));
  EXPECT_TRUE(health_.failed(Failure::kBroken, {}, now_));
  EXPECT_TRUE(health_.broken());
  EXPECT_FALSE(health_.open(1, now_ + 1h)) << "time alone heals nothing";
  now_ += 5s;
  ASSERT_TRUE(health_.take_probe(now_));
  EXPECT_FALSE(health_.take_probe(now_)) << "it is being asked";
  EXPECT_TRUE(health_.probed(true, now_));
  EXPECT_EQ(health_.limit(), 1);
  EXPECT_TRUE(health_.open(1, now_));
}

TEST_F(HealthTest, the_back_off_doubles_up_to_half_a_minute_and_begins_anew_after_ten_answers) {
  EXPECT_TRUE(health_.failed(Failure::kUnreachable, {}, now_));
  Duration before{0};
  for (int i = 0; i < 10; ++i) {
    const Duration wait = health_.opens_at(1, now_) - now_;
    EXPECT_GE(wait, 0.75 * std::min<double>(1 << i, 30) * 1s);
    EXPECT_LE(wait, 1.25 * std::min<double>(1 << i, 30) * 1s);
    before = wait;
    now_ += wait;
    ASSERT_TRUE(health_.take_probe(now_));
    EXPECT_FALSE(health_.probed(false, now_));
  }
  EXPECT_GT(before, 20s);
  now_ += 1min;
  ASSERT_TRUE(health_.take_probe(now_));
  EXPECT_TRUE(health_.probed(true, now_));
  for (int i = 0; i < 10; ++i) wave(1);
  EXPECT_TRUE(health_.failed(Failure::kUnreachable, {}, now_));
  EXPECT_LE(health_.opens_at(1, now_) - now_, 1250ms);
}

TEST(Health, one_that_was_never_there_is_asked_every_few_seconds) {
  Health health({.slots = 8, .probe_every = 2s});
  Time now{1h};
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(health.take_probe(now));
    EXPECT_FALSE(health.probed(false, now));
    EXPECT_LE(health.opens_at(1, now) - now, 2500ms);
    now += 3s;
  }
  ASSERT_TRUE(health.take_probe(now));
  EXPECT_TRUE(health.probed(true, now));
  EXPECT_EQ(health.limit(), 4) << "it has not failed anybody";
}

TEST(Health, its_own_rates_bind) {
  Health health({.slots = 64, .requests_per_minute = 60, .tokens_per_minute = 6000});
  Time now{1h};
  health.probed(true, now);
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(health.open(10, now));
    health.sent(10, now);
  }
  EXPECT_FALSE(health.open(10, now));
  EXPECT_EQ(health.opens_at(10, now), now + 1s);
  EXPECT_TRUE(health.open(10, now + 1s));
  EXPECT_TRUE(health.open(5400, now + 1s));
  EXPECT_FALSE(health.open(5600, now + 1s));
  EXPECT_TRUE(health.open(1e9, now + 1min)) << "more than a minute's allowance goes when that is whole";
}

TEST(Health, what_a_provider_says_of_its_rates_binds) {
  Health health({.slots = 64});
  Time now{1h};
  health.probed(true, now);
  health.note({.requests_left = 2, .tokens_left = 1000, .requests_reset = 10s, .tokens_reset = 20s}, now);
  EXPECT_TRUE(health.open(1000, now));
  EXPECT_FALSE(health.open(1001, now));
  EXPECT_EQ(health.opens_at(1001, now), now + 20s);
  health.sent(100, now);
  health.sent(100, now);
  EXPECT_EQ(health.opens_at(1, now), now + 10s);
  EXPECT_TRUE(health.open(1, now + 10s));
}

TEST_F(HealthTest, one_that_answers_requests_is_asked_for_its_models_all_the_same) {
  ASSERT_TRUE(health_.take_probe(now_ += 5s));
  health_.probed(true, now_);
  for (int i = 0; i < 10; ++i) wave(4, 1s);
  EXPECT_TRUE(health_.take_probe(now_)) << "what it has may have changed";
}

TEST_F(HealthTest, one_that_lacks_a_model_is_asked_at_once_and_at_most_once_a_second) {
  ASSERT_TRUE(health_.take_probe(now_ += 5s));
  health_.probed(true, now_);
  EXPECT_FALSE(health_.failed(Failure::kMissing, std::nullopt, now_));
  EXPECT_FALSE(health_.take_probe(now_));
  EXPECT_TRUE(health_.take_probe(now_ + 1s));
  EXPECT_TRUE(health_.open(1, now_));
}

}  // namespace
}  // namespace tandem::gateway
