// The slow start of a server, in simulated time.
#include "serve/slow_start.h"

#include <gmock/gmock.h>

#include <set>
#include <string>

namespace tandem::serve {
namespace {

using namespace std::chrono_literals;

std::set<std::string> admitted(SlowStart& start, Time now) {
  std::set<std::string> users;
  for (int i = 0; i < 1000; ++i) {
    const std::string user = "user " + std::to_string(i);
    if (!start.ask(user, 0, now)) users.insert(user);
  }
  return users;
}

class SlowStartTest : public testing::Test {
 protected:
  SlowStartTest() { start_.begin(now_); }
  // So many answers begin within a step.
  void step(uint64_t answers, double seconds_each, size_t under_way = 0) {
    now_ += 2s;
    begun_ += answers;
    begun_seconds_ += static_cast<double>(answers) * seconds_each;
    start_.tick(begun_, begun_seconds_, under_way, now_);
  }
  Time now_{1h};
  uint64_t begun_ = 0;
  double begun_seconds_ = 0;
  SlowStart start_{{.first = 2, .whole = 32, .step = 2s}};
};

TEST_F(SlowStartTest, the_limit_and_the_share_of_users_double_while_the_latency_holds) {
  EXPECT_EQ(start_.limit(), 2);
  EXPECT_DOUBLE_EQ(start_.share(), 2.0 / 32);
  for (const int limit : {4, 8, 16}) {
    step(10, 0.1);
    EXPECT_EQ(start_.limit(), limit);
  }
  EXPECT_FALSE(start_.over());
  step(10, 0.12);
  EXPECT_TRUE(start_.over());
  EXPECT_EQ(start_.share(), 1);
  EXPECT_FALSE(start_.ask("anybody", 100'000, now_)) << "the queue says the rest";
}

TEST_F(SlowStartTest, the_same_users_get_through_and_more_with_each_step) {
  auto before = admitted(start_, now_);
  EXPECT_NEAR(static_cast<double>(before.size()), 1000 * start_.share(), 40);
  for (int i = 0; i < 3; ++i) {
    step(10, 0.1);
    const auto now = admitted(start_, now_);
    EXPECT_NEAR(static_cast<double>(now.size()), 1000 * start_.share(), 60);
    EXPECT_TRUE(std::ranges::includes(now, before)) << "who got through goes on";
    before = now;
  }
  SlowStart other({.first = 16, .whole = 32});
  other.begin(now_);
  EXPECT_EQ(admitted(other, now_), before) << "on every server";
}

TEST_F(SlowStartTest, no_more_than_the_limit_are_under_way) {
  const std::string user = *admitted(start_, now_).begin();
  EXPECT_FALSE(start_.ask(user, 1, now_));
  const auto refusal = start_.ask(user, 2, now_);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->retry_after, Duration(2s));
  EXPECT_THAT(refusal->says, testing::HasSubstr("few requests at once"));
  EXPECT_GT(start_.refused(), 0u);
}

TEST_F(SlowStartTest, it_waits_where_answers_become_slower_and_goes_back_where_they_are_much_slower) {
  step(10, 0.1);
  step(10, 0.1);
  EXPECT_EQ(start_.limit(), 8);
  step(10, 0.25);
  EXPECT_EQ(start_.limit(), 8);
  step(10, 0.5);
  EXPECT_EQ(start_.limit(), 4);
  for (int i = 0; i < 5; ++i) step(10, 0.9);
  EXPECT_EQ(start_.limit(), 2) << "not below the first";
  step(10, 0.15);
  EXPECT_EQ(start_.limit(), 4);
}

TEST_F(SlowStartTest, it_waits_for_the_first_answers_and_grows_where_nobody_asks) {
  step(0, 0, 2);
  step(0, 0, 2);
  EXPECT_EQ(start_.limit(), 2);
  step(0, 0, 0);
  EXPECT_EQ(start_.limit(), 4);
}

TEST_F(SlowStartTest, it_ends_in_any_case) {
  step(10, 0.1);
  for (int i = 0; i < 160 && !start_.over(); ++i) step(10, 5);
  EXPECT_TRUE(start_.over());
}

TEST(SlowStart, none_is_asked_for_by_default) {
  SlowStart start({});
  EXPECT_TRUE(start.over());
  EXPECT_FALSE(start.ask("anybody", 1'000'000, Time{1h}));
  EXPECT_EQ(start.share(), 1);
}

}  // namespace
}  // namespace tandem::serve
