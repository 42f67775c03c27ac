// The threads of a kernel; owned by the caller, never global.
//
// `run` splits work into tasks that any thread may claim in any order, so a result must never depend on who ran what.
// A thread that the kernel has put aside delays only the task it holds, which matters where processes share cores.
//
// Thread safety: `run` is called from one thread at a time; tasks run on that thread and on the pool's own.
#pragma once

#include <functional>
#include <memory>

namespace tandem::kernels {

class ThreadPool {
 public:
  // `threads` in all, the caller's included; at least 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;
  // Runs task(0) .. task(tasks - 1), each once, and returns when all are done. Tasks must not throw.
  void run(int tasks, const std::function<void(int)>& task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::kernels
