#include "eval/schedule.h"

#include <gmock/gmock.h>

#include "base/random.h"

namespace tandem::eval {
namespace {

using namespace std::chrono_literals;
using rollout::Outcome;

class ScheduleTest : public testing::Test {
 protected:
  void begin(size_t samples, ScheduleSettings settings = {}) {
    for (size_t i = 0; i < samples; ++i) settings.samples.push_back(i);
    schedule_.emplace(std::move(settings));
    step(ScheduleBegins{});
  }
  void step(const ScheduleEvent& event) {
    for (auto& action : schedule_->step(event, now_)) {
      EXPECT_FALSE(over_) << "after the end";
      if (const auto* start = std::get_if<StartSample>(&action)) {
        started_.push_back(start->sample);
        attempt_ = start->attempt;
      }
      if (const auto* stop = std::get_if<StopSample>(&action)) stopped_.push_back(stop->sample);
      if (const auto* keep = std::get_if<KeepSample>(&action)) kept_.push_back(keep->sample);
      if (auto* given_up = std::get_if<GiveUpSample>(&action)) given_up_.push_back(*given_up);
      if (auto* over = std::get_if<ScheduleOver>(&action)) over_ = *over;
    }
  }
  void ends(size_t sample, Outcome outcome, uint64_t tokens = 0) { step(SampleEnded{sample, outcome, "why", tokens}); }

  Time now_{};
  std::optional<Schedule> schedule_;
  std::vector<size_t> started_, stopped_, kept_;
  std::vector<GiveUpSample> given_up_;
  std::optional<ScheduleOver> over_;
  int attempt_ = 0;
};

TEST_F(ScheduleTest, samples_run_in_their_order_and_no_more_than_allowed_at_once) {
  begin(3, {.concurrency = 2});
  EXPECT_THAT(started_, testing::ElementsAre(0, 1));
  ends(1, Outcome::kCompleted);
  EXPECT_THAT(started_, testing::ElementsAre(0, 1, 2));
  ends(0, Outcome::kTruncated);
  EXPECT_FALSE(over_);
  ends(2, Outcome::kCompleted);
  ASSERT_TRUE(over_);
  EXPECT_EQ(over_->end, ScheduleEnd::kDone);
  EXPECT_THAT(kept_, testing::ElementsAre(1, 0, 2));
}

TEST_F(ScheduleTest, nothing_to_do_is_done_at_once) {
  begin(0);
  ASSERT_TRUE(over_);
  EXPECT_EQ(over_->end, ScheduleEnd::kDone);
}

TEST_F(ScheduleTest, a_failure_of_the_infrastructure_is_tried_again_after_a_wait_and_kept_in_the_end) {
  begin(1, {.attempts = 2});
  ends(0, Outcome::kInfraError);
  EXPECT_TRUE(kept_.empty());
  ASSERT_TRUE(schedule_->deadline());
  EXPECT_EQ(*schedule_->deadline(), now_ + 2s);
  step(ScheduleTime{});
  EXPECT_EQ(started_.size(), 1u);
  now_ += 2s;
  step(ScheduleTime{});
  EXPECT_EQ(started_.size(), 2u);
  EXPECT_EQ(attempt_, 2);
  ends(0, Outcome::kInfraError);
  EXPECT_THAT(kept_, testing::ElementsAre(0));
  EXPECT_TRUE(over_);
}

TEST_F(ScheduleTest, a_timeout_is_kept_and_not_tried_again) {
  begin(1);
  ends(0, Outcome::kTimeout);
  EXPECT_THAT(kept_, testing::ElementsAre(0));
  EXPECT_TRUE(over_);
}

TEST_F(ScheduleTest, a_model_that_is_gone_gives_up_what_is_left_as_failures_of_the_infrastructure) {
  begin(4, {.concurrency = 2});
  ends(0, Outcome::kCompleted);
  step(ModelGone{"no answer"});
  EXPECT_THAT(stopped_, testing::ElementsAre(1, 2));
  ends(1, Outcome::kCancelled);
  EXPECT_FALSE(over_);
  ends(2, Outcome::kCompleted);  // it came to its verdict all the same
  ASSERT_TRUE(over_);
  EXPECT_EQ(over_->end, ScheduleEnd::kGaveUp);
  EXPECT_THAT(kept_, testing::ElementsAre(0, 2));
  ASSERT_EQ(given_up_.size(), 2u);
  for (const auto& each : given_up_) {
    EXPECT_EQ(each.outcome, Outcome::kInfraError);
    EXPECT_EQ(each.why, "no answer");
  }
}

TEST_F(ScheduleTest, failures_in_a_row_end_it_and_a_verdict_between_them_does_not) {
  begin(6, {.concurrency = 1, .attempts = 1, .failures_in_a_row = 3});
  ends(0, Outcome::kInfraError);
  ends(1, Outcome::kInfraError);
  ends(2, Outcome::kCompleted);
  ends(3, Outcome::kInfraError);
  ends(4, Outcome::kInfraError);
  EXPECT_FALSE(over_);
  ends(5, Outcome::kInfraError);
  ASSERT_TRUE(over_);
  EXPECT_EQ(over_->end, ScheduleEnd::kDone) << "all had ended";
  EXPECT_EQ(kept_.size(), 6u);
}

TEST_F(ScheduleTest, an_interrupted_one_leaves_what_has_not_ended_for_the_next_time) {
  begin(4, {.concurrency = 2});
  step(ScheduleInterrupted{});
  EXPECT_THAT(stopped_, testing::ElementsAre(0, 1));
  ends(0, Outcome::kCancelled);
  ends(1, Outcome::kCompleted);
  ASSERT_TRUE(over_);
  EXPECT_EQ(over_->end, ScheduleEnd::kInterrupted);
  EXPECT_THAT(kept_, testing::ElementsAre(1));
  EXPECT_TRUE(given_up_.empty());
}

TEST_F(ScheduleTest, budgets_of_tokens_and_of_time_cancel_the_rest) {
  begin(3, {.concurrency = 1, .total_tokens = 100});
  ends(0, Outcome::kCompleted, 120);
  ASSERT_TRUE(over_);
  EXPECT_EQ(over_->end, ScheduleEnd::kOutOfBudget);
  EXPECT_THAT(kept_, testing::ElementsAre(0));
  ASSERT_EQ(given_up_.size(), 2u);
  EXPECT_EQ(given_up_[0].outcome, Outcome::kCancelled);

  over_.reset();
  stopped_.clear();
  begin(2, {.concurrency = 1, .total_time = 5s});
  EXPECT_EQ(*schedule_->deadline(), now_ + 5s);
  now_ += 5s;
  step(ScheduleTime{});
  EXPECT_THAT(stopped_, testing::ElementsAre(0));
  ends(0, Outcome::kCancelled);
  ASSERT_TRUE(over_);
  EXPECT_EQ(over_->end, ScheduleEnd::kOutOfBudget);
}

// Whatever happens: no more than allowed run, each sample comes to exactly one end, and the schedule to its own.
TEST_F(ScheduleTest, random_events_leave_no_sample_out_and_none_twice) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    started_.clear(), stopped_.clear(), kept_.clear(), given_up_.clear(), over_.reset();
    const size_t samples = random.below(12), most = 1 + random.below(4);
    begin(samples, {.concurrency = most, .attempts = 2, .failures_in_a_row = 5});
    std::multiset<size_t> running;
    size_t seen = 0;
    bool interrupted = false;
    for (int events = 0; !over_ && events < 10'000; ++events) {
      for (; seen < started_.size(); ++seen) running.insert(started_[seen]);
      ASSERT_LE(running.size(), most);
      if (running.empty() || random.chance(0.2)) {
        now_ += 40s;
        step(ScheduleTime{});
      } else if (random.chance(0.02)) {
        interrupted = true;
        step(ScheduleInterrupted{});
      } else if (random.chance(0.02)) {
        step(ModelGone{"gone"});
      } else {
        const size_t sample = *running.begin();
        running.erase(running.begin());
        ends(sample, static_cast<Outcome>(random.below(6)));
      }
    }
    ASSERT_TRUE(over_) << seed;
    std::set<size_t> ended(kept_.begin(), kept_.end());
    for (const auto& each : given_up_) ended.insert(each.sample);
    EXPECT_EQ(ended.size(), kept_.size() + given_up_.size()) << seed;
    if (!interrupted) {
      EXPECT_EQ(ended.size(), samples) << seed;
    }
  }
}

}  // namespace
}  // namespace tandem::eval
