#include "serve/admission.h"

#include <algorithm>
#include <cmath>

#include "base/overloaded.h"

namespace tandem::serve {
namespace {

using namespace std::chrono_literals;

constexpr std::array<double, kPriorities.size()> kWeights = {64, 16, 4, 1};
// Of the slots, that a class may fill.
constexpr std::array<double, kPriorities.size()> kShares = {1, 0.9, 0.8, 0.7};
constexpr size_t kMeasured = 64;  // starts that the drain rate is measured over
constexpr Duration kLeastWait = 1s, kMostWait = 60s;

}  // namespace

AdmissionActions Admission::step(const AdmissionEvent& event, Time now) {
  AdmissionActions actions;
  std::visit(Overloaded{[&](const Offer& offer) {
                          if (waiting() + static_cast<int>(offer.answers.size()) >
                              settings_.queue + std::max(0, settings_.slots - running())) {
                            actions.refused = until_room(now);
                            return;
                          }
                          for (const AnswerId answer : offer.answers) enqueue(answer, {offer.priority, offer.key});
                        },
                        [&](const Ended& ended) {
                          if (const auto found = running_.find(ended.answer); found != running_.end()) {
                            --of(found->second).running;
                            running_.erase(found);
                          } else if (const auto place = where_.find(ended.answer); place != where_.end()) {
                            dequeue(ended.answer, Place(place->second));
                          }
                        },
                        [&](const Hold& hold) { held_ = hold.held; },
                        [&](const Slots& slots) { settings_.slots = slots.slots; }},
             event);
  if (!actions.refused) start_next(now, actions.start);
  return actions;
}

int Admission::share(Priority priority) const {
  const double slots = settings_.slots * kShares[static_cast<size_t>(priority)];
  return std::max(1, static_cast<int>(std::floor(slots)));
}

bool Admission::may_start(Priority priority) const {
  const int own = classes_[static_cast<size_t>(priority)].running;
  if (running() < settings_.slots) return own < share(priority);
  return priority == Priority::kAutocomplete && own < settings_.slots / 2 &&
         running() < settings_.slots + settings_.slots / 2;
}

void Admission::enqueue(AnswerId answer, const Place& place) {
  Class& own = of(place.priority);
  // A class that was empty has saved nothing up.
  if (own.waiting == 0) own.pass = std::max(own.pass, pass_);
  auto& queue = own.keys[place.key];
  if (queue.empty()) own.turns.push_back(place.key);
  queue.push_back(answer);
  ++own.waiting;
  where_.emplace(answer, place);
}

void Admission::dequeue(AnswerId answer, const Place& place) {
  Class& own = of(place.priority);
  auto& queue = own.keys.at(place.key);
  std::erase(queue, answer);
  --own.waiting;
  if (queue.empty()) {
    own.keys.erase(place.key);
    std::erase(own.turns, place.key);
  }
  where_.erase(answer);
}

void Admission::start_next(Time now, std::vector<AnswerId>& start) {
  while (!held_) {
    std::optional<Priority> next;
    for (size_t i = 0; i < classes_.size(); ++i) {
      const auto priority = static_cast<Priority>(i);
      const Class& one = classes_[i];
      if (one.waiting == 0 || !may_start(priority)) continue;
      if (!next || one.pass < of(*next).pass) next = priority;
    }
    if (!next) return;
    Class& own = of(*next);
    const std::string key = own.turns.front();
    const AnswerId answer = own.keys.at(key).front();
    own.turns.pop_front();
    own.turns.push_back(key);
    dequeue(answer, {*next, key});
    pass_ = own.pass;
    own.pass += 1 / kWeights[static_cast<size_t>(*next)];
    ++own.running;
    running_.emplace(answer, *next);
    start.push_back(answer);
    starts_.push_back(now);
    if (starts_.size() > kMeasured) starts_.pop_front();
  }
}

// The queue is full: a place is free once some of it has been started, at the rate of the last starts.
Duration Admission::until_room(Time now) const {
  if (starts_.size() < 2) return kLeastWait;
  const double seconds = std::max(1e-3, to_seconds(now - starts_.front()));
  const double rate = static_cast<double>(starts_.size()) / seconds;
  const double wait = std::max(1.0, waiting() / 4.0) / rate;
  return std::clamp(from_seconds(std::min(wait, 3600.0)), kLeastWait, kMostWait);
}

}  // namespace tandem::serve
