#include "serve/admission.h"

#include <algorithm>
#include <cmath>

#include "base/overloaded.h"

namespace tandem::serve {
namespace {

using namespace std::chrono_literals;

constexpr std::array<double, kPriorities.size()> kWeights = {64, 16, 4, 1};
// The share of the slots that a class may fill.
constexpr std::array<double, kPriorities.size()> kShares = {1, 0.9, 0.8, 0.7};
constexpr size_t kMeasured = 64;  // starts that the drain rate is measured over
constexpr Duration kLeastWait = 1s, kMostWait = 60s;
constexpr int kMeanOf = 16;       // answers that a mean time is of, about
constexpr double kFarOff = 3600;  // seconds that a wait is predicted for, at most

}  // namespace

AdmissionActions Admission::step(const AdmissionEvent& event, Time now) {
  AdmissionActions actions;
  std::visit(
      Overloaded{[&](const Offer& offer) {
                   const auto count = static_cast<int>(offer.answers.size());
                   if (ahead_of(offer.priority) + count > settings_.queue + std::max(0, settings_.slots - running())) {
                     actions.refused = until_room(offer.priority, now);
                     return;
                   }
                   const Duration longest = settings_.longest_wait[static_cast<size_t>(offer.priority)];
                   const Duration wait = predicted_wait(offer.priority, offer.answers.size());
                   if (longest > Duration::zero() && wait > longest) {
                     actions.refused = std::clamp<Duration>(wait - longest, kLeastWait, kMostWait);
                     actions.too_late = true;
                     return;
                   }
                   for (const AnswerId answer : offer.answers) enqueue(answer, {offer.priority, offer.key});
                 },
                 [&](const Ended& ended) {
                   if (const auto found = running_.find(ended.answer); found != running_.end()) {
                     --of(found->second.priority).running;
                     take_time(found->second.priority, now - found->second.since);
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
    running_.emplace(answer, Running{*next, now});
    start.push_back(answer);
    starts_.push_back(now);
    if (starts_.size() > kMeasured) starts_.pop_front();
  }
}

int Admission::ahead_of(Priority priority) const {
  int count = 0;
  for (size_t i = 0; i <= static_cast<size_t>(priority); ++i) count += classes_[i].waiting;
  return count;
}

void Admission::take_time(Priority priority, Duration taken) {
  Duration& mean = of(priority).mean;
  mean = mean == Duration::zero() ? taken : mean + (taken - mean) / kMeanOf;
}

// Slots get free as answers end; a class has its part of them by its weight among those that wait, and at most its
// share.
Duration Admission::predicted_wait(Priority priority, size_t answers) const {
  const size_t own = static_cast<size_t>(priority);
  const auto free = std::min(settings_.slots - running(), share(priority) - classes_[own].running);
  const auto queued = static_cast<double>(classes_[own].waiting) + static_cast<double>(answers) - std::max(0, free);
  if (queued <= 0 || (priority == Priority::kAutocomplete && may_start(priority) && classes_[own].waiting == 0))
    return {};
  double ends_a_second = 0, weights = 0;
  for (size_t i = 0; i < classes_.size(); ++i) {
    const Class& one = classes_[i];
    // The own mean is the best guess for a class none of which has ended.
    const double mean = to_seconds(one.mean > Duration::zero() ? one.mean : classes_[own].mean);
    if (mean > 0) ends_a_second += one.running / mean;
    if (one.waiting > 0 || i == own) weights += kWeights[i];
  }
  if (ends_a_second <= 0) return {};
  return from_seconds(std::min(queued / (ends_a_second * kWeights[own] / weights), kFarOff));
}

// The queue is full: a place is free once some of it has been started, at the rate of the last starts.
Duration Admission::until_room(Priority priority, Time now) const {
  if (starts_.size() < 2) return kLeastWait;
  const double seconds = std::max(1e-3, to_seconds(now - starts_.front()));
  const double rate = static_cast<double>(starts_.size()) / seconds;
  const double wait = std::max(1.0, ahead_of(priority) / 4.0) / rate;
  return std::clamp(from_seconds(std::min(wait, 3600.0)), kLeastWait, kMostWait);
}

}  // namespace tandem::serve
