#include "wire/attempts.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace tandem::wire {
namespace {

using namespace std::chrono_literals;

class AttemptsTest : public testing::Test {
 protected:
  SendAt sent(const AttemptEvent& event) {
    const auto action = attempts_.step(event, now_);
    const auto* send = std::get_if<SendAt>(&action);
    EXPECT_NE(send, nullptr);
    if (send == nullptr) return {};
    EXPECT_GE(send->at, now_);
    waited_ = send->at - now_;
    now_ = send->at;
    return *send;
  }
  bool gives_up(const AttemptEvent& event) { return std::holds_alternative<GiveUp>(attempts_.step(event, now_)); }
  void use(const AttemptSettings& settings) { attempts_ = Attempts(settings); }

  Attempts attempts_{AttemptSettings{}};
  Time now_{};
  Duration waited_{};
};

TEST_F(AttemptsTest, waits_double_with_half_of_them_drawn_until_all_tries_are_used) {
  use({.tries = 4, .longest_wait = 3s});
  EXPECT_EQ(sent(RequestWanted{}).number, 1);
  EXPECT_EQ(waited_, 0s);
  for (const Duration longest : {Duration(1s), Duration(2s), Duration(3s)}) {
    sent(AttemptFailed{});
    EXPECT_GE(waited_, longest / 2);
    EXPECT_LE(waited_, longest);
  }
  EXPECT_TRUE(gives_up(AttemptFailed{}));
}

TEST_F(AttemptsTest, a_failure_that_would_not_pass_ends_it_at_once_also_where_there_are_other_servers) {
  use({.servers = 3});
  sent(RequestWanted{});
  EXPECT_TRUE(gives_up(AttemptFailed{.passing = false}));
}

TEST_F(AttemptsTest, a_server_is_left_alone_for_as_long_as_it_asks_but_not_for_ever) {
  use({.longest_retry_after = 60s});
  sent(RequestWanted{});
  sent(AttemptFailed{.retry_after = 17s});
  EXPECT_EQ(waited_, 17s);
  EXPECT_TRUE(gives_up(AttemptFailed{.retry_after = 61s}));
}

TEST_F(AttemptsTest, the_next_server_is_asked_without_a_wait_and_the_one_that_answered_first_the_next_time) {
  use({.servers = 2, .tries = 2});
  EXPECT_EQ(sent(RequestWanted{}).server, 0u);
  EXPECT_EQ(sent(AttemptFailed{}).server, 0u);
  EXPECT_EQ(sent(AttemptFailed{}).server, 1u);
  EXPECT_EQ(waited_, 0s);
  EXPECT_TRUE(std::holds_alternative<AllWell>(attempts_.step(AttemptAnswered{}, now_)));
  EXPECT_EQ(sent(RequestWanted{}).server, 1u);
  sent(AttemptFailed{});
  EXPECT_EQ(sent(AttemptFailed{}).server, 0u);
  sent(AttemptFailed{});
  EXPECT_TRUE(gives_up(AttemptFailed{}));
}

TEST_F(AttemptsTest, a_server_that_asks_for_too_long_a_pause_makes_room_for_the_next) {
  use({.servers = 2, .longest_retry_after = 60s});
  sent(RequestWanted{});
  EXPECT_EQ(sent(AttemptFailed{.retry_after = 3600s}).server, 1u);
}

TEST_F(AttemptsTest, in_any_sixty_seconds_there_are_no_more_attempts_than_allowed) {
  Random random(4);
  use({.servers = 2, .tries = 3, .per_minute = 5, .seed = 8});
  std::vector<Time> times;
  bool running = false;
  for (int i = 0; i < 400; ++i) {
    AttemptEvent event = RequestWanted{};
    if (running && random.chance(0.6)) event = AttemptFailed{};
    if (running && random.chance(0.2)) event = AttemptAnswered{};
    const auto action = attempts_.step(event, now_);
    running = false;
    if (const auto* send = std::get_if<SendAt>(&action)) {
      running = true;
      now_ = send->at;
      times.push_back(now_);
    }
    now_ += from_seconds(random.uniform() * 5);
  }
  ASSERT_GT(times.size(), 100u);
  for (size_t i = 5; i < times.size(); ++i) EXPECT_GE(times[i] - times[i - 5], 60s);
}

TEST_F(AttemptsTest, the_same_seed_and_events_give_the_same_actions) {
  Attempts one({.servers = 2, .seed = 5}), two({.servers = 2, .seed = 5});
  for (int i = 0; i < 9; ++i) {
    const AttemptEvent event = i == 0 ? AttemptEvent(RequestWanted{}) : AttemptEvent(AttemptFailed{});
    EXPECT_EQ(one.step(event, now_), two.step(event, now_));
  }
}

}  // namespace
}  // namespace tandem::wire
