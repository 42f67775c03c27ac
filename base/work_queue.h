// Jobs for a few threads, and their results back on the thread that asked.
//
// The owner submits jobs, waits on `wake_fd` along with its sockets, and runs the completions that have come in: what a
// job returns is a function for the owner's thread. The queue is bounded; a full one says so.
//
// Thread safety: submit, run_completions and the destructor on the owner's thread; jobs run on the queue's own. The
// destructor waits for the jobs that have begun and forgets the others.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/file.h"

namespace tandem {

class WorkQueue {
 public:
  using Completion = std::function<void()>;
  using Job = std::function<Completion()>;

  WorkQueue(int threads, size_t capacity);
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  bool submit(Job job);  // false where the queue is full
  void run_completions();
  int wake_fd() const { return wake_.get(); }
  size_t pending() const;  // jobs that have not been completed

 private:
  void work();
  const size_t capacity_;
  FileDescriptor wake_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::deque<Completion> done_;
  size_t running_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tandem
