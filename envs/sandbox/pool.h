// Sandboxes kept ready, so that an episode does not wait for one to be made.
//
// The pool keeps `warm` empty sandboxes of one size; whoever asks for others, or finds it empty, waits for a fresh one.
// A sandbox is used once and never comes back. Thread safety: create may be called from several threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

class SandboxPool final : public SandboxBackend {
 public:
  // `backend` must outlive the pool, and the pool the sandboxes that come from it. `size` says how large the warm ones
  // are.
  SandboxPool(SandboxBackend& backend, const SandboxSpec& size, size_t warm);
  ~SandboxPool() override;

  Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& spec) override;

  size_t ready() const;

 private:
  void fill();
  bool same_size(const SandboxSpec& spec) const;

  SandboxBackend& backend_;
  const SandboxSpec size_;
  const size_t warm_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Sandbox>> ready_;
  bool stopping_ = false;
  std::thread filler_;
};

}  // namespace tandem::envs
