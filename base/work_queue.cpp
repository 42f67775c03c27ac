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
    jobs_.clear();
  }
  changed_.notify_all();
  for (auto& thread : threads_) thread.join();
}

bool WorkQueue::submit(Job job) {
  {
    std::lock_guard lock(mutex_);
    if (jobs_.size() >= capacity_) return false;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
  return true;
}

void WorkQueue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
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
  return jobs_.size() + running_ + done_.size();
}

}  // namespace tandem
