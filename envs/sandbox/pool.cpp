#include "envs/sandbox/pool.h"

#include <algorithm>

namespace tandem::envs {
namespace {

bool same_class(const SandboxSpec& a, const SandboxSpec& b) {
  return a.image == b.image && a.environment == b.environment && a.links == b.links && a.network == b.network &&
         a.packages == b.packages && a.home == b.home && a.proxy == b.proxy && a.processes == b.processes &&
         a.memory_bytes == b.memory_bytes && a.disk_bytes == b.disk_bytes && a.file_bytes == b.file_bytes &&
         a.sealable == b.sealable;
}

}  // namespace

SandboxPool::SandboxPool(SandboxBackend& backend, const Clock& clock, const SandboxSpec& usual,
                         const WarmBounds& bounds)
    : backend_(backend), clock_(clock), bounds_(bounds) {
  classes_.push_back({usual, WarmPlan(bounds_), {}, true});
  filler_ = std::thread([this] { fill(); });
}

SandboxPool::~SandboxPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  filler_.join();
}

SandboxPool::Class& SandboxPool::class_of(const SandboxSpec& spec, Ended& ended) {
  const auto same =
      std::find_if(classes_.begin(), classes_.end(), [&](auto& one) { return same_class(one.spec, spec); });
  if (same != classes_.end()) return *same;
  if (classes_.size() >= kMostClasses) {
    auto oldest = classes_.end();
    for (auto one = classes_.begin(); one != classes_.end(); ++one) {
      if (one->usual || &*one == filling_) continue;
      if (oldest == classes_.end() || one->plan.last_asked() < oldest->plan.last_asked()) oldest = one;
    }
    if (oldest != classes_.end()) {
      std::move(oldest->ready.begin(), oldest->ready.end(), std::back_inserter(ended));
      classes_.erase(oldest);
    }
  }
  auto bounds = bounds_;
  bounds.least = 0;
  classes_.push_back({spec, WarmPlan(bounds), {}, false});
  classes_.back().spec.holder = {};
  return classes_.back();
}

std::unique_ptr<Sandbox> SandboxPool::take_ready(Class& of, Ended& ended) {
  while (!of.ready.empty()) {
    auto sandbox = std::move(of.ready.front());
    of.ready.pop_front();
    if (!sandbox->has_ended()) return sandbox;
    ended.push_back(std::move(sandbox));
    of.plan.lost();
    ++counters_.lost;
  }
  return nullptr;
}

Result<std::unique_ptr<Sandbox>> SandboxPool::create(const SandboxSpec& spec) {
  if (!spec.workspace && spec.begins_on.empty() && !spec.base && !spec.below) {
    std::unique_ptr<Sandbox> sandbox;
    Ended ended;  // without the lock
    {
      std::lock_guard lock(mutex_);
      auto& of = class_of(spec, ended);
      sandbox = take_ready(of, ended);
      of.plan.asked(clock_.now());
      if (sandbox) ++counters_.warm;
    }
    changed_.notify_all();
    if (sandbox) {
      sandbox->set_call_limits(spec);
      return sandbox;
    }
  }
  const Time start = clock_.now();
  auto sandbox = backend_.create(spec);
  std::lock_guard lock(mutex_);
  ++(sandbox ? counters_.fresh : counters_.failed);
  if (sandbox) counters_.last_fresh_milliseconds = 1e3 * to_seconds(clock_.now() - start);
  return sandbox;
}

PoolCounters SandboxPool::counters() const {
  std::lock_guard lock(mutex_);
  auto counters = counters_;
  for (const auto& each : classes_) counters.ready += each.ready.size();
  return counters;
}

SandboxPool::Class* SandboxPool::next_to_fill(Ended& ended, std::optional<Time>& again) {
  const Time now = clock_.now();
  for (auto& each : classes_) {
    const auto step = each.plan.step(now);
    for (size_t i = 0; i < step.let_go && !each.ready.empty(); ++i) {
      ended.push_back(std::move(each.ready.back()));
      each.ready.pop_back();
    }
    if (step.make > 0) return &each;
    if (step.again && (!again || *step.again < *again)) again = step.again;
  }
  return nullptr;
}

void SandboxPool::fill() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    Ended ended;
    std::optional<Time> again;
    filling_ = next_to_fill(ended, again);
    if (!ended.empty()) {
      lock.unlock();
      ended.clear();
      lock.lock();
    }
    if (!filling_) {
      if (stopping_) break;
      if (again) {
        // A clock that is not the system's is asked again every now and then.
        changed_.wait_for(
            lock, std::clamp<Duration>(*again - clock_.now(), std::chrono::milliseconds(1), std::chrono::seconds(1)));
      } else {
        changed_.wait(lock);
      }
      continue;
    }
    const SandboxSpec spec = filling_->spec;
    lock.unlock();
    auto sandbox = backend_.create(spec);
    lock.lock();
    if (sandbox) {
      filling_->ready.push_back(std::move(*sandbox));
      filling_->plan.made();
    } else {
      // Whoever asks gets the error from the backend.
      ++counters_.failed;
      filling_->plan.failed(clock_.now());
    }
    filling_ = nullptr;
  }
}

}  // namespace tandem::envs
