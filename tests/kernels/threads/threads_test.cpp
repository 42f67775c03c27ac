// The threads of a kernel by themselves, small enough to be compiled with the thread sanitizer in every run of CI.
#include "kernels/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

namespace tandem::kernels {
namespace {

TEST(ThreadPool, runs_each_task_once_whatever_their_number) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> times(tasks);
      pool.run(tasks, [&](int index) { ++times[index]; });
      for (int i = 0; i < tasks; ++i) EXPECT_EQ(times[i], 1) << i << " of " << tasks << " on " << threads;
    }
  }
}

// What tasks wrote is read without a lock once `run` has returned, and what was written before it by tasks.
TEST(ThreadPool, what_a_round_wrote_is_there_for_the_next) {
  ThreadPool pool(4);
  std::vector<long> values(64);
  std::iota(values.begin(), values.end(), 0L);
  for (int round = 0; round < 2000; ++round) {
    const int by = round % 3;
    pool.run(static_cast<int>(values.size()), [&](int index) { values[index] += by; });
    values[round % 64] -= by;
  }
  // 666 rounds of three add 0, 1 and 2; the last two add 0 and 1. One value of each round lost what it was given.
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), 0L), 64 * 63 / 2 + 63 * (666 * 3 + 1));
}

TEST(ThreadPool, one_that_was_never_used_or_has_slept_ends) {
  for (int i = 0; i < 200; ++i) {
    ThreadPool pool(3);
    if (i % 2 == 0) continue;
    int sum = 0;  // of the caller alone: a single task runs on its thread
    pool.run(1, [&](int) { ++sum; });
    EXPECT_EQ(sum, 1);
  }
}

TEST(ThreadPool, several_pools_do_not_disturb_each_other) {
  ThreadPool outer(3);
  std::vector<int> sums(6);
  outer.run(static_cast<int>(sums.size()), [&](int index) {
    ThreadPool inner(2);
    std::atomic<int> sum{0};
    inner.run(100, [&](int task) { sum += task; });
    sums[index] = sum;
  });
  EXPECT_EQ(sums, std::vector<int>(6, 4950));
}

}  // namespace
}  // namespace tandem::kernels
