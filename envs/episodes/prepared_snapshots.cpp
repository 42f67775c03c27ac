#include "envs/episodes/prepared_snapshots.h"

#include <algorithm>
#include <utility>

namespace tandem::envs {
namespace {

constexpr size_t kMostEntries = 1024;  // with those that are not to be had

}  // namespace

Result<std::unique_ptr<Sandbox>> PreparedSnapshots::begin(SandboxBackend& backend, const SandboxSpec& spec,
                                                          const ContentDigest& key,
                                                          const std::function<Status(Sandbox&)>& prepare) {
  std::optional<Snapshot> snapshot;
  {
    std::unique_lock lock(mutex_);
    Entry* const known = find(lock, key);
    if (!known) {
      entries_.push_front({.key = key});
      lock.unlock();
      return make(backend, spec, key, prepare);
    }
    if (known->state == State::kMade) {
      snapshot = known->snapshot;
      ++counters_.begun;
    }
  }
  if (snapshot) {
    auto begun = begin_again(backend, spec, *snapshot);
    if (begun) return begun;
    forget(key);  // it may be lost with what held it; whatever it is, what follows does without
  }
  auto sandbox = TRY(backend.create(spec));
  TRY(prepare(*sandbox));
  return sandbox;
}

PreparedSnapshots::Entry* PreparedSnapshots::find(std::unique_lock<std::mutex>& lock, const ContentDigest& key) {
  const Time deadline = SystemClock().now() + longest_wait_;
  for (;;) {
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& one) { return one.key == key; });
    if (found == entries_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found);
    if (found->state != State::kBeingMade || SystemClock().now() >= deadline) return &*found;
    settled_.wait_until(lock, deadline);
  }
}

Result<std::unique_ptr<Sandbox>> PreparedSnapshots::make(SandboxBackend& backend, const SandboxSpec& spec,
                                                         const ContentDigest& key,
                                                         const std::function<Status(Sandbox&)>& prepare) {
  auto sealable = spec;
  sealable.sealable = true;
  const auto prepared = [&]() -> Result<std::unique_ptr<Sandbox>> {
    auto sandbox = TRY(backend.create(sealable));
    TRY(prepare(*sandbox));
    return sandbox;
  };
  auto sandbox = prepared();
  auto sealed = sandbox ? seal(**sandbox) : fail(sandbox.error());
  const bool goes_on = sandbox && !sealed && sealed.error().code() == Code::kUnfit;
  if (sealed || goes_on) {
    settle(key, sealed ? &*sealed : nullptr);
    return sealed ? begin_again(backend, spec, *sealed) : std::move(sandbox);
  }
  forget(key);
  return fail(std::move(sealed).error());
}

// Whoever waits for it tries for himself.
void PreparedSnapshots::forget(const ContentDigest& key) {
  std::list<Entry> let_go;  // without the lock
  {
    std::lock_guard lock(mutex_);
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& one) { return one.key == key; });
    if (found == entries_.end()) return;
    counters_.bytes -= found->bytes;
    let_go.splice(let_go.begin(), entries_, found);
  }
  settled_.notify_all();
}

void PreparedSnapshots::settle(const ContentDigest& key, const Snapshot* snapshot) {
  std::list<Entry> let_go;  // without the lock
  {
    std::lock_guard lock(mutex_);
    for (auto& entry : entries_) {
      if (entry.key != key) continue;
      entry.state = snapshot ? State::kMade : State::kNotToBeHad;
      if (!snapshot) continue;
      entry.snapshot = *snapshot;
      // Another may have been made meanwhile, where one was forgotten that was being made.
      counters_.bytes -= std::exchange(entry.bytes, snapshot->layers.bytes());
      counters_.bytes += entry.bytes;
      ++counters_.made;
      ++counters_.begun;
    }
    for (auto last = entries_.end(); last != entries_.begin();) {
      const auto entry = std::prev(last);
      const bool too_much = counters_.bytes > most_bytes_ || entries_.size() > kMostEntries;
      if (!too_much) break;
      if (entry->state == State::kBeingMade) {
        last = entry;
        continue;
      }
      counters_.bytes -= entry->bytes;
      let_go.splice(let_go.begin(), entries_, entry);
    }
  }
  settled_.notify_all();
}

PreparedSnapshots::Counters PreparedSnapshots::counters() const {
  std::lock_guard lock(mutex_);
  auto counters = counters_;
  counters.kept = static_cast<size_t>(
      std::count_if(entries_.begin(), entries_.end(), [](const Entry& one) { return one.state == State::kMade; }));
  return counters;
}

}  // namespace tandem::envs
