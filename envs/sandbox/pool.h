// A pool of warm sandboxes, so that an episode does not wait for its creation.
//
// Sandboxes of one class (image, limits, links, open hosts) are interchangeable. A WarmPlan decides how many of a class
// are kept. A request that finds none, or asks for a folder of the host or for layers, waits for a fresh one. A sandbox
// is used once and never comes back; one that ended while it was kept (its first process was killed) is never given
// away. Thread safety: create may be called from several threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <thread>

#include "envs/sandbox/sandbox.h"
#include "envs/sandbox/warm_plan.h"

namespace tandem::envs {

struct PoolCounters {
  uint64_t warm = 0, fresh = 0;        // given away: warm ones; ones made on request
  uint64_t failed = 0;                 // could not be made
  uint64_t lost = 0;                   // ended while they were kept ready
  size_t ready = 0;                    // now
  double last_fresh_milliseconds = 0;  // to make the last one on request
};

class SandboxPool final : public SandboxBackend {
 public:
  static constexpr size_t kMostClasses = 4;  // the one asked for longest ago makes room for another

  // `backend` and `clock` must outlive the pool, and the pool the sandboxes that come from it. Of the class of `usual`
  // `bounds.least` are made at once; other classes have none before somebody asks.
  SandboxPool(SandboxBackend& backend, const Clock& clock, const SandboxSpec& usual, const WarmBounds& bounds);
  ~SandboxPool() override;

  Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& spec) override;

  PoolCounters counters() const;

 private:
  struct Class {
    SandboxSpec spec;
    WarmPlan plan;
    std::deque<std::unique_ptr<Sandbox>> ready = {};
    bool usual = false;
  };
  using Ended = std::vector<std::unique_ptr<Sandbox>>;

  void fill();
  // With the lock held: the class of a spec; one that is made for it may end what another had ready.
  Class& class_of(const SandboxSpec& spec, Ended& ended);
  // With the lock held: one that is ready and lives, null where there is none.
  std::unique_ptr<Sandbox> take_ready(Class& of, Ended& ended);
  // With the lock held: lets the plans decide. The class for which one is to be made, and when to ask again.
  Class* next_to_fill(Ended& ended, std::optional<Time>& again);

  SandboxBackend& backend_;
  const Clock& clock_;
  const WarmBounds bounds_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Class> classes_;
  Class* filling_ = nullptr;  // stays while one is made for it
  PoolCounters counters_;
  bool stopping_ = false;
  std::thread filler_;
};

}  // namespace tandem::envs
