// Who samples: slots and pages go to turns of a lower priority number first, then to those that came first.
#include <algorithm>

#include "rollout/engine/engine.h"

namespace tandem::rollout {

void Engine::admit() {
  while (!waiting_.empty()) {
    const Waiting next = *waiting_.begin();
    if (static_cast<int>(admitted_.size()) >= settings_.slots) {
      // The one that goes last makes room where it goes behind the next. Its pages stay while nobody needs them.
      Waiting last;
      for (const auto& [id, sequence] : admitted_) last = std::max(last, place_of(id, *sequence));
      if (last.priority <= next.priority) return;
      admitted_.erase(last.id);
      waiting_.insert(last);
      ++counters_.preemptions;
    }
    admitted_.emplace(next.id, &sequences_.at(next.id));
    waiting_.erase(next);
  }
}

void Engine::leave_queue(SequenceId id, const Sequence& sequence) {
  if (admitted_.erase(id) == 0) waiting_.erase(place_of(id, sequence));
}

// The sequences of each priority by id.
std::vector<std::pair<SequenceId, Engine::Sequence*>> Engine::in_order() const {
  std::vector<std::pair<SequenceId, Sequence*>> order(admitted_.begin(), admitted_.end());
  std::ranges::stable_sort(order, {}, [](const auto& one) { return one.second->turn.priority; });
  return order;
}

// Makes room for `tokens` positions of `sequence`, taking pages of those without a slot, the longest unused first, and
// of those that go behind it.
Result<bool> Engine::make_room(Sequence& sequence, int tokens) {
  while (!TRY(cache_.grow(sequence.pages, tokens))) {
    Sequence* victim = nullptr;
    for (auto& [id, other] : sequences_) {
      if (admitted_.contains(id) || other.pages.empty() || &other == &sequence) continue;
      if (victim == nullptr || other.touched < victim->touched) victim = &other;
    }
    if (victim == nullptr) victim = give_up_pages(sequence);
    if (victim == nullptr) return false;
    forget_pages(*victim);
  }
  return true;
}

// Who of those that sample goes last behind `wanting`, and is not in this pass.
Engine::Sequence* Engine::give_up_pages(const Sequence& wanting) {
  Sequence* victim = nullptr;
  for (const auto& [id, other] : in_order()) {
    const bool behind = other->turn.priority > wanting.turn.priority && other->touched != counters_.steps;
    if (behind && !other->pages.empty()) victim = other;
  }
  if (victim == nullptr) return nullptr;
  ++counters_.preemptions;
  counters_.recomputed_tokens += victim->computed;
  return victim;
}

}  // namespace tandem::rollout
