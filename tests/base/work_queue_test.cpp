#include "base/work_queue.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>

namespace tandem {
namespace {

// One thread, kept busy until every job is submitted; then their order is that of the queue alone.
struct OneAtATime {
  explicit OneAtATime(size_t capacity) : queue(1, capacity) {
    queue.submit([this]() -> WorkQueue::Completion {
      begun = true;
      begun.notify_all();
      open.wait(false);
      return [] {};
    });
    begun.wait(false);
  }
  ~OneAtATime() { let_go(); }
  bool submit(uint64_t lane) {
    return queue.submit([this, lane]() -> WorkQueue::Completion { return [this, lane] { order.push_back(lane); }; },
                        lane);
  }
  void let_go() {
    open = true;
    open.notify_all();
  }
  // All that was submitted has been completed.
  std::vector<uint64_t> finish() {
    let_go();
    while (queue.pending() > 0) {
      pollfd wait = {queue.wake_fd(), POLLIN, 0};
      if (poll(&wait, 1, 10'000) <= 0) break;
      queue.run_completions();
    }
    return order;
  }

  std::atomic<bool> begun{false}, open{false};
  std::vector<uint64_t> order;
  WorkQueue queue;
};

TEST(WorkQueue, lanes_take_turns_however_much_one_of_them_submits_first) {
  OneAtATime work(16);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(work.submit(1));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(work.submit(2));
  EXPECT_TRUE(work.submit(3));
  EXPECT_EQ(work.finish(), (std::vector<uint64_t>{1, 2, 3, 1, 2, 1, 1, 1}));
}

TEST(WorkQueue, a_full_lane_leaves_room_in_the_others) {
  OneAtATime work(2);
  EXPECT_TRUE(work.submit(1));
  EXPECT_TRUE(work.submit(1));
  EXPECT_FALSE(work.submit(1));
  EXPECT_TRUE(work.submit(2));
  EXPECT_EQ(work.queue.pending(), 4u);
  EXPECT_EQ(work.finish(), (std::vector<uint64_t>{1, 2, 1}));
}

}  // namespace
}  // namespace tandem
