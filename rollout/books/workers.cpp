#include "rollout/books/workers.h"

#include <algorithm>

namespace tandem::rollout {

template <typename Change>
void WorkerTable::change(Worker& worker, const Change& edit) {
  wanting_.erase(&worker);
  holders_.erase(&worker);
  dry_.erase(&worker);
  edit(worker);
  if (!worker.leased.empty()) holders_.insert(&worker);
  if (!worker.present || worker.credits == 0) return;
  wanting_.insert(&worker);
  if (!worker.stealing && worker.leased.size() * 4 <= worker.credits) dry_.insert(&worker);
}

WorkerTable::Worker& WorkerTable::of(const std::string& name) {
  const auto [at, fresh] = workers_.try_emplace(name);
  if (fresh) at->second.name = name;
  return at->second;
}

const WorkerTable::Worker* WorkerTable::find(const std::string& name) const {
  const auto found = workers_.find(name);
  return found == workers_.end() ? nullptr : &found->second;
}

bool WorkerTable::is_present(const std::string& name) const {
  const Worker* worker = find(name);
  return worker != nullptr && worker->present;
}

void WorkerTable::set_credits(const std::string& name, uint32_t credits) {
  change(of(name), [&](Worker& worker) {
    worker.present = true;
    worker.credits = credits;
  });
}

void WorkerTable::leave(const std::string& name) {
  change(of(name), [](Worker& worker) {
    worker.present = false;
    worker.credits = 0;
  });
}

void WorkerTable::leave_all() {
  for (auto& [name, worker] : workers_) leave(name);
}

void WorkerTable::lease(const Worker& worker, std::span<const uint64_t> episodes) {
  change(of(worker.name), [&](Worker& changed) {
    changed.credits -= std::min(changed.credits, static_cast<uint32_t>(episodes.size()));
    changed.leased.insert(episodes.begin(), episodes.end());
  });
}

void WorkerTable::release(const std::string& name, uint64_t episode) {
  change(of(name), [&](Worker& worker) { worker.leased.erase(episode); });
}

void WorkerTable::hand_over(const std::string& from, const std::string& to, uint64_t episode) {
  release(from, episode);
  change(of(to), [&](Worker& worker) { worker.leased.insert(episode); });
}

const WorkerTable::Worker* WorkerTable::first_wanting() const { return wanting_.empty() ? nullptr : *wanting_.begin(); }

const WorkerTable::Worker* WorkerTable::next_wanting(const Worker& worker) const {
  const auto next = wanting_.upper_bound(&worker);
  return next == wanting_.end() ? nullptr : *next;
}

std::vector<WorkerTable::Theft> WorkerTable::start_thefts(uint32_t gap) {
  std::vector<Theft> thefts;
  if (holders_.empty()) return thefts;
  const Worker* const victim = *holders_.begin();
  const auto held = static_cast<uint32_t>(victim->leased.size());
  while (!dry_.empty()) {
    const Worker* const thief = *dry_.begin();
    const auto has = static_cast<uint32_t>(thief->leased.size());
    if (held < has + gap) break;
    thefts.push_back({victim, thief, std::min(thief->credits, std::max(1u, (held - has) / 2))});
    change(of(thief->name), [](Worker& worker) { worker.stealing = true; });
  }
  return thefts;
}

void WorkerTable::end_theft(const std::string& thief) {
  if (const Worker* worker = find(thief); worker != nullptr && worker->stealing)
    change(of(thief), [](Worker& changed) { changed.stealing = false; });
}

void WorkerTable::end_thefts() {
  for (auto& [name, worker] : workers_) end_theft(name);
}

void WorkerTable::restore(Worker worker) {
  change(of(worker.name), [&](Worker& changed) { changed = std::move(worker); });
}

}  // namespace tandem::rollout
