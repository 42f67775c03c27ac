#include "envs/sandbox/pool.h"

#include <chrono>

namespace tandem::envs {

SandboxPool::SandboxPool(SandboxBackend& backend, const SandboxSpec& size, size_t warm)
    : backend_(backend), size_(size), warm_(warm), filler_([this] { fill(); }) {}

SandboxPool::~SandboxPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  filler_.join();
}

bool SandboxPool::same_size(const SandboxSpec& spec) const {
  return !spec.workspace && spec.links == size_.links && spec.processes == size_.processes &&
         spec.memory_bytes == size_.memory_bytes && spec.disk_bytes == size_.disk_bytes &&
         spec.file_bytes == size_.file_bytes;
}

Result<std::unique_ptr<Sandbox>> SandboxPool::create(const SandboxSpec& spec) {
  if (same_size(spec)) {
    std::lock_guard lock(mutex_);
    if (!ready_.empty()) {
      auto sandbox = std::move(ready_.front());
      ready_.pop_front();
      changed_.notify_all();
      sandbox->set_call_limits(spec);
      return sandbox;
    }
  }
  return backend_.create(spec);
}

size_t SandboxPool::ready() const {
  std::lock_guard lock(mutex_);
  return ready_.size();
}

void SandboxPool::fill() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (ready_.size() >= warm_) {
      changed_.wait(lock);
      continue;
    }
    lock.unlock();
    auto sandbox = backend_.create(size_);
    lock.lock();
    if (sandbox) {
      ready_.push_back(std::move(*sandbox));
    } else {
      // Whoever asks gets the error from the backend; the pool tries again after a while.
      changed_.wait_for(lock, std::chrono::seconds(1));
    }
  }
}

}  // namespace tandem::envs
