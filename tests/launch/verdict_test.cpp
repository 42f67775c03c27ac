// What follows the end of a run.
#include "launch/verdict.h"

#include <gtest/gtest.h>

#include "launch/job.h"

namespace tandem::launch {
namespace {

TEST(Verdict, a_run_that_is_done_or_cannot_work_is_not_started_again) {
  for (const int status : {0, 1, 2, 3, 5, 6, 127}) {
    const Verdict verdict = judge(status, {.most_restarts = 100});
    EXPECT_EQ(verdict.next, Next::kEnd) << status;
    EXPECT_EQ(verdict.exit_code, status);
    EXPECT_FALSE(verdict.crashed);
  }
}

// 143 and 138: SIGTERM and SIGUSR1, before the run sees to them.
TEST(Verdict, an_interrupted_run_is_started_again_as_often_as_is_allowed) {
  for (const int status : {75, 143, 138}) {
    EXPECT_EQ(judge(status, {.restarts = 99, .most_restarts = 100}).next, Next::kAgain) << status;
    const Verdict last = judge(status, {.restarts = 100, .most_restarts = 100});
    EXPECT_EQ(last.next, Next::kEnd) << status;
    EXPECT_EQ(last.exit_code, 75) << status;
  }
}

TEST(Verdict, a_run_that_crashes_is_started_again_three_times_whatever_else_happened) {
  EXPECT_EQ(judge(137, {.restarts = 1000, .crashes = kMostCrashes - 1, .most_restarts = 0}).next, Next::kAgain);
  EXPECT_TRUE(judge(139, {}).crashed);
  const Verdict last = judge(137, {.crashes = kMostCrashes, .most_restarts = 100});
  EXPECT_EQ(last.next, Next::kEnd);
  EXPECT_EQ(last.exit_code, 137);
}

TEST(Verdict, what_a_person_stopped_stays_stopped_and_can_be_gone_on_with) {
  for (const int status : {75, 143, 137}) {
    const Verdict verdict = judge(status, {.most_restarts = 100, .stopped = true});
    EXPECT_EQ(verdict.next, Next::kEnd) << status;
    EXPECT_EQ(verdict.exit_code, status == 137 ? 137 : 75);
  }
  EXPECT_EQ(judge(0, {.stopped = true}).exit_code, 0);
}

}  // namespace
}  // namespace tandem::launch
