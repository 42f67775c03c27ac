#include "base/work_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

namespace tandem {

WorkQueue::WorkQueue(int threads, size_t capacity)
    : capacity_(capacity), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

WorkQueue::~WorkQueue() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    lanes_.clear();
    turns_.clear();
    waiting_ = 0;
  }
  changed_.notify_all();
  for (auto& thread : threads_) thread.join();
}

bool WorkQueue::submit(Job job, uint64_t lane) {
  {
    std::lock_guard lock(mutex_);
    auto& jobs = lanes_[lane];
    if (jobs.size() >= capacity_) return false;
    if (jobs.empty()) turns_.push_back(lane);
    jobs.push_back(std::move(job));
    ++waiting_;
  }
  changed_.notify_one();
  return true;
}

void WorkQueue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !turns_.empty(); });
    if (stopping_) return;
    const auto lane = lanes_.find(turns_.front());
    turns_.pop_front();
    Job job = std::move(lane->second.front());
    lane->second.pop_front();
    --waiting_;
    if (lane->second.empty())
      lanes_.erase(lane);
    else
      turns_.push_back(lane->first);
    ++running_;
    lock.unlock();
    Completion completion = job();
    lock.lock();
    --running_;
    done_.push_back(std::move(completion));
    const uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);  // a counter at its limit is readable already
  }
}

void WorkQueue::run_completions() {
  uint64_t count;
  (void)!::read(wake_.get(), &count, sizeof count);
  std::deque<Completion> done;
  {
    std::lock_guard lock(mutex_);
    done.swap(done_);
  }
  for (auto& completion : done) completion();
}

size_t WorkQueue::pending() const {
  std::lock_guard lock(mutex_);
  return waiting_ + running_ + done_.size();
}

}  // namespace tandem
