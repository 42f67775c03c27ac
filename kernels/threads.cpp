#include "kernels/threads.h"

#include <immintrin.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem::kernels {

namespace {

// Kernels follow each other within microseconds, and being woken by the system takes tens of them: who waits looks for
// a moment before it sleeps. Longer would take the core from other processes.
template <typename Condition>
void look_for(const Condition& met) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
  do {
    for (int i = 0; i < 32; ++i) {
      if (met()) return;
      _mm_pause();
    }
  } while (std::chrono::steady_clock::now() < limit);
}

}  // namespace

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake, done;
  // Written with the mutex held; read without it by those who look before they sleep.
  std::atomic<uint64_t> round{0};
  std::atomic<int> helpers_inside{0};
  std::atomic<bool> stopping{false};
  const std::function<void(int)>* task = nullptr;
  int tasks = 0;
  std::atomic<int> next{0};
  std::vector<std::thread> helpers;

  void claim(const std::function<void(int)>& work, int count) {
    for (int index; (index = next.fetch_add(1, std::memory_order_relaxed)) < count;) work(index);
  }

  void help() {
    uint64_t seen = 0;
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [&] { return stopping || (round != seen && task != nullptr); });
      if (stopping) return;
      seen = round;
      const auto* work = task;
      const int count = tasks;
      ++helpers_inside;
      lock.unlock();
      claim(*work, count);
      lock.lock();
      if (--helpers_inside == 0) done.notify_one();
      lock.unlock();
      look_for([&] { return round != seen || stopping; });
      lock.lock();
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  for (int i = 1; i < threads; ++i) state_->helpers.emplace_back([state = state_.get()] { state->help(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake.notify_all();
  for (auto& helper : state_->helpers) helper.join();
}

int ThreadPool::threads() const { return static_cast<int>(state_->helpers.size()) + 1; }

void ThreadPool::run(int tasks, const std::function<void(int)>& task) {
  if (tasks <= 1 || state_->helpers.empty()) {
    for (int i = 0; i < tasks; ++i) task(i);
    return;
  }
  {
    std::lock_guard lock(state_->mutex);
    state_->task = &task;
    state_->tasks = tasks;
    state_->next.store(0, std::memory_order_relaxed);
    ++state_->round;
  }
  state_->wake.notify_all();
  state_->claim(task, tasks);
  look_for([&] { return state_->helpers_inside == 0; });
  // A helper that has not woken by now must find nothing to do: the task is withdrawn before this returns.
  std::unique_lock lock(state_->mutex);
  state_->task = nullptr;
  state_->done.wait(lock, [&] { return state_->helpers_inside == 0; });
}

}  // namespace tandem::kernels
