#include "wire/http_places.h"

#include <algorithm>
#include <utility>

namespace tandem::wire {

HttpPlaces::Place::Place(HttpPlaces& places) : places_(places) { ++places_.taken_; }

HttpPlaces::Place::~Place() {
  use(Use::kBusy);
  if (!has_left_) --places_.taken_;
}

void HttpPlaces::Place::use(Use use) {
  if (use == use_ || has_left_) return;
  if (use_ != Use::kBusy) places_.of(use_).erase(at_);
  use_ = use;
  if (use == Use::kBusy) return;
  auto& list = places_.of(use);
  at_ = list.insert(list.end(), this);
}

bool HttpPlaces::Place::leave() {
  use(Use::kBusy);
  if (!leave_ || !leave_()) return false;
  has_left_ = true;
  --places_.taken_;
  return true;
}

bool HttpPlaces::may_make_room() const {
  return std::any_of(waiting_.begin(), waiting_.end(), [](const auto& list) { return !list.empty(); });
}

bool HttpPlaces::make_room() {
  for (auto& list : waiting_) {
    while (is_full() && !list.empty()) list.front()->leave();
  }
  return !is_full();
}

void HttpPlaces::leave(Use use) {
  if (use == Use::kBusy) return;
  for (auto& list = of(use); !list.empty();) list.front()->leave();
}

}  // namespace tandem::wire
