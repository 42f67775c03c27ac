#include "hosts/silence.h"

#include <gmock/gmock.h>

namespace tandem::hosts {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

// A run of five hosts, as its standby sees it.
class MajorityWatchTest : public testing::Test {
 protected:
  static constexpr double kPatience = 10;
  MajorityWatch::Turn tick(double silent_here, double passed = 0.02) {
    now_ += from_seconds(passed);
    return watch_.tick({.seconds = silent_here}, now_);
  }
  // True where it goes on with the run within some seconds of asking.
  bool takes_over_within_seconds(const std::function<void()>& answers) {
    for (int i = 0; i < 500; ++i) {
      const auto turn = tick(kPatience + 1);
      if (turn.takes_over) return true;
      if (!turn.asks.empty()) answers();
    }
    return false;
  }
  void answer(const std::string& host, double seconds, bool is_over = false) {
    watch_.on(host, {.seconds = seconds, .is_over = is_over}, now_);
  }
  Time now_{1000s};
  MajorityWatch watch_{{.run = "r", .others = {"a", "b", "c", "d"}, .patience = kPatience}};
};

TEST_F(MajorityWatchTest, asks_nobody_before_the_run_was_silent_for_long_enough) {
  EXPECT_THAT(tick(0).asks, IsEmpty());
  EXPECT_THAT(tick(kPatience - 0.1).asks, IsEmpty());
  EXPECT_THAT(tick(kPatience).asks, ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(watch_.needed(), 3u);
}

TEST_F(MajorityWatchTest, goes_on_with_the_run_once_where_more_than_half_hear_nothing) {
  EXPECT_TRUE(takes_over_within_seconds([&] {
    answer("a", kPatience);
    answer("b", kPatience + 50);
  }));
  EXPECT_FALSE(takes_over_within_seconds([&] { answer("c", kPatience + 50); }));
}

TEST_F(MajorityWatchTest, those_that_hear_it_and_strangers_do_not_count) {
  EXPECT_FALSE(takes_over_within_seconds([&] {
    answer("a", kPatience + 1);
    answer("b", kPatience - 1);
    answer("e", kPatience + 1);
  }));
  // Nor does who does not answer.
  EXPECT_FALSE(takes_over_within_seconds([] {}));
}

TEST_F(MajorityWatchTest, a_run_that_one_host_was_given_back_by_is_left_to_an_operator_who_hears_of_it_once) {
  size_t told = 0;
  for (int i = 0; i < 500; ++i) {
    const auto turn = tick(kPatience + 1);
    ASSERT_FALSE(turn.takes_over);
    for (const std::string& line : turn.news) told += line.starts_with("host c says that run r has given it back");
    for (const std::string& host : turn.asks) answer(host, kPatience + 1, host == "c");
  }
  EXPECT_EQ(told, 1u);
}

TEST_F(MajorityWatchTest, what_was_said_some_seconds_ago_does_not_count) {
  (void)tick(kPatience);
  answer("a", kPatience);
  (void)tick(kPatience, 4);
  answer("b", kPatience);
  EXPECT_FALSE(tick(kPatience).takes_over);
  answer("c", kPatience);
  EXPECT_TRUE(tick(kPatience).takes_over);
}

TEST_F(MajorityWatchTest, a_run_that_is_heard_again_is_left_alone) {
  (void)tick(kPatience);
  answer("a", kPatience);
  answer("b", kPatience);
  const auto turn = tick(0.5);
  EXPECT_FALSE(turn.takes_over);
  EXPECT_THAT(turn.news, ElementsAre("run r is heard again"));
  EXPECT_EQ(watch_.state(), MajorityWatch::State::kListening);
  EXPECT_FALSE(takes_over_within_seconds([] {})) << "answers of before count no more";
}

TEST_F(MajorityWatchTest, a_run_that_has_given_this_host_back_is_left_alone) {
  const auto turn = watch_.tick({.seconds = kPatience * 100, .is_over = true}, now_);
  EXPECT_THAT(turn.asks, IsEmpty());
}

TEST_F(MajorityWatchTest, what_failed_is_tried_again_some_times) {
  const auto all_agree = [&] {
    for (const char* host : {"a", "b", "c", "d"}) answer(host, kPatience);
  };
  for (int i = 0; i < MajorityWatch::kMostAttempts; ++i) {
    ASSERT_TRUE(takes_over_within_seconds(all_agree)) << i;
    watch_.failed(now_);
    EXPECT_THAT(tick(kPatience * 3).asks, IsEmpty()) << "not at once";
    now_ += from_seconds(kPatience);
  }
  EXPECT_FALSE(takes_over_within_seconds(all_agree));
  EXPECT_EQ(watch_.state(), MajorityWatch::State::kDone);
}

TEST(RunsHeard, a_run_is_silent_since_its_last_word_or_since_the_host_began) {
  RunsHeard heard(Time(100s));
  EXPECT_EQ(heard.silence(1, Time(103s)).seconds, 3);
  heard.heard(1, Time(103s));
  EXPECT_EQ(heard.silence(1, Time(104s)).seconds, 1);
  EXPECT_EQ(heard.silence(2, Time(104s)).seconds, 4);
}

TEST(RunsHeard, time_in_which_the_host_did_nothing_is_nobodys_silence) {
  RunsHeard heard(Time(100s));
  heard.heard(1, Time(100s));
  heard.tick(Time(100s + 20ms));
  heard.tick(Time(160s));
  EXPECT_LT(heard.silence(1, Time(160s)).seconds, 0.1);
  EXPECT_LT(heard.silence(2, Time(160s)).seconds, 0.1);
}

TEST(RunsHeard, a_late_word_of_a_run_that_is_over_opens_nothing) {
  RunsHeard heard(Time(100s));
  heard.opened(1, Time(100s));
  heard.over(1, Time(101s));
  heard.heard(1, Time(102s));
  EXPECT_TRUE(heard.silence(1, Time(103s)).is_over);
  heard.opened(1, Time(104s));
  EXPECT_FALSE(heard.silence(1, Time(105s)).is_over);
}

TEST(RunsHeard, keeps_so_many_runs_at_most) {
  RunsHeard heard(Time(0s));
  for (uint64_t run = 1; run <= RunsHeard::kMostRuns + 1; ++run) heard.opened(run, Time(std::chrono::seconds(run)));
  const Time now(std::chrono::seconds(RunsHeard::kMostRuns + 2));
  EXPECT_EQ(heard.silence(1, now).seconds, to_seconds(now - Time(0s))) << "forgotten: since the host began";
  EXPECT_EQ(heard.silence(2, now).seconds, to_seconds(now - Time(2s)));
}

}  // namespace
}  // namespace tandem::hosts
