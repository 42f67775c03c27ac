// A bounded job queue with worker threads; completions run on the owner's thread.
//
// The owner submits jobs, waits on `wake_fd` along with its sockets, and runs the completions that have come in: what a
// job returns is a function for the owner's thread. The queue is bounded.
//
// Jobs are queued in lanes. Lanes are served round-robin, so a burst in one lane does not delay the others.
//
// Thread safety: submit, run_completions and the destructor on the owner's thread; jobs run on the queue's own. The
// destructor waits for the jobs that have begun and forgets the others.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/file.h"

namespace tandem {

class WorkQueue {
 public:
  using Completion = std::function<void()>;
  using Job = std::function<Completion()>;

  // `capacity`: jobs of one lane that wait, one at least.
  WorkQueue(int threads, size_t capacity);
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  bool submit(Job job, uint64_t lane = 0);  // false where the lane is full
  void run_completions();
  int wake_fd() const { return wake_.get(); }
  size_t pending() const;  // jobs that have not been completed

 private:
  void work();
  const size_t capacity_;
  FileDescriptor wake_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, std::deque<Job>> lanes_;  // those that have jobs
  std::deque<uint64_t> turns_;                 // the same lanes, the next one first
  size_t waiting_ = 0;                         // jobs of all lanes
  std::deque<Completion> done_;
  size_t running_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tandem
