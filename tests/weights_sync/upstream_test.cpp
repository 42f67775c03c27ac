// Whom a receiver asks for weights, in simulated time.
#include "weights_sync/upstream.h"

#include <gtest/gtest.h>

namespace tandem::weights_sync {
namespace {

using namespace std::chrono_literals;
using Source = Upstream::Source;

// A receiver whose loop turns every 10 ms.
class UpstreamTest : public testing::Test {
 protected:
  void tell(const Upstream::Event& event) { upstream_.step(event, now_); }
  // Lets time pass; asks the one that it is to ask each second, and hears its relay where that answers.
  void pass(Duration time) {
    for (const Time end = now_ + time; now_ < end; now_ += 10ms) {
      upstream_.step(turn_, now_);
      if (upstream_.source() != Source::kRelay || now_ < next_ask_) continue;
      next_ask_ = now_ + 1s;
      tell(Upstream::Asked{});
      if (answers_) tell(Upstream::Heard{.is_receiving = turn_.is_receiving});
    }
  }
  Source source() const { return upstream_.source(); }

  Upstream upstream_{5s};
  Upstream::Turn turn_;
  Time now_{}, next_ask_{};
  bool answers_ = true;
};

TEST_F(UpstreamTest, a_relay_that_answers_is_asked_for_good) {
  pass(1h);
  EXPECT_EQ(source(), Source::kRelay);
  EXPECT_EQ(upstream_.given_up(), 0u);
}

TEST_F(UpstreamTest, a_relay_that_does_not_answer_is_left_after_the_patience_each_time_for_longer) {
  answers_ = false;
  pass(4900ms);
  EXPECT_EQ(source(), Source::kRelay);
  pass(200ms);
  EXPECT_EQ(source(), Source::kTrainer);
  EXPECT_NE(upstream_.why().find("not answered"), std::string::npos) << upstream_.why();
  pass(14500ms);
  EXPECT_EQ(source(), Source::kTrainer);
  pass(1s);
  EXPECT_EQ(source(), Source::kRelay) << "tried again after 15 s";
  pass(6s);
  EXPECT_EQ(source(), Source::kTrainer);
  pass(28s);
  EXPECT_EQ(source(), Source::kTrainer) << "for 30 s the second time";
  pass(3s);
  EXPECT_EQ(source(), Source::kRelay);
  EXPECT_EQ(upstream_.given_up(), 2u);
  pass(24h);
  EXPECT_LT(upstream_.given_up(), 200u) << "every 8 minutes in the end";
  EXPECT_GT(upstream_.given_up(), 150u);
}

TEST_F(UpstreamTest, a_version_that_the_relay_served_ends_the_row_of_failures) {
  answers_ = false;
  pass(50s);
  ASSERT_EQ(upstream_.given_up(), 2u);
  answers_ = true;
  pass(1min);
  ASSERT_EQ(source(), Source::kRelay);
  turn_.held = 1;
  pass(1s);
  answers_ = false;
  pass(7s);
  ASSERT_EQ(source(), Source::kTrainer);
  pass(15s);
  EXPECT_EQ(source(), Source::kRelay) << "15 s again";
}

TEST_F(UpstreamTest, a_relay_that_does_not_get_a_version_is_left_though_it_answers) {
  pass(1min);
  tell(Upstream::Known{1});
  pass(4900ms);
  EXPECT_EQ(source(), Source::kRelay);
  pass(200ms);
  EXPECT_EQ(source(), Source::kTrainer);
  EXPECT_NE(upstream_.why().find("version 1"), std::string::npos) << upstream_.why();
}

TEST_F(UpstreamTest, a_version_whose_chunks_come_is_waited_for_and_one_that_is_prepared_too) {
  tell(Upstream::Known{1});
  turn_.is_receiving = true;
  pass(1min);
  EXPECT_EQ(source(), Source::kRelay);
  turn_.is_receiving = false;
  turn_.is_busy = true;
  answers_ = false;
  pass(1min);
  EXPECT_EQ(source(), Source::kRelay) << "nobody is waited for";
  turn_ = {.held = 1};
  answers_ = true;
  pass(1min);
  EXPECT_EQ(source(), Source::kRelay);
  EXPECT_EQ(upstream_.given_up(), 0u);
}

TEST_F(UpstreamTest, a_relay_that_is_lost_between_two_chunks_is_left_after_the_patience) {
  turn_.is_receiving = true;
  pass(10s);
  answers_ = false;
  pass(6100ms);
  EXPECT_EQ(source(), Source::kTrainer);
}

TEST_F(UpstreamTest, a_receiver_in_the_middle_of_something_does_not_go_back) {
  answers_ = false;
  pass(6s);
  ASSERT_EQ(source(), Source::kTrainer);
  turn_.is_receiving = true;
  pass(1min);
  EXPECT_EQ(source(), Source::kTrainer);
  turn_.is_receiving = false;
  turn_.is_busy = true;
  pass(1min);
  EXPECT_EQ(source(), Source::kTrainer);
  turn_.is_busy = false;
  pass(20ms);
  EXPECT_EQ(source(), Source::kRelay);
}

TEST_F(UpstreamTest, damaged_chunks_in_a_row_and_a_refused_version_are_a_failure) {
  turn_.refused_in_a_row = 3;
  pass(1s);
  EXPECT_EQ(source(), Source::kRelay);
  turn_.refused_in_a_row = 4;
  pass(20ms);
  EXPECT_EQ(source(), Source::kTrainer);
  turn_.refused_in_a_row = 0;
  turn_.refused_versions = 1;  // of the trainer
  pass(16s);
  EXPECT_EQ(source(), Source::kRelay);
  turn_.refused_versions = 2;
  pass(20ms);
  EXPECT_EQ(source(), Source::kTrainer);
  EXPECT_EQ(upstream_.given_up(), 2u);
}

TEST_F(UpstreamTest, time_in_which_the_receiver_slept_counts_for_nothing) {
  tell(Upstream::Known{1});
  tell(Upstream::Asked{});
  pass(3s);
  now_ += 1h;
  pass(3s);
  EXPECT_EQ(source(), Source::kRelay);
}

}  // namespace
}  // namespace tandem::weights_sync
