#include "gateway/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "base/overloaded.h"

namespace tandem::gateway {

using namespace std::chrono_literals;

namespace {

// The upstream with the prefix is passed over where it has more than this times the mean, and one: consistent hashing
// with bounded loads (Mirrokni, Thorup and Zadimoghaddam 2018).
constexpr double kMostOfMean = 1.25;
// Less of a prompt than this is no reason to prefer one.
constexpr double kLeastFound = 0.25;
constexpr double kRepeatsPerRequest = 0.2, kMostRepeats = 10;
constexpr Duration kForgetEvery = 1s;
constexpr int kMostLosses = 2;  // of one request, with processes of this server

// What an upstream without requests counts as having: little, so that one that has just come back and may have one
// gets it, and more than nothing, so that of idle ones the faster is preferred.
constexpr double kIdle = 0.05;

// To half a power of two: upstreams that differ by less are equal.
double coarse(double seconds) { return std::exp2(std::round(std::log2(seconds) * 2) / 2); }

int status_of(std::optional<Failure> failure) {
  if (!failure || *failure == Failure::kUnreachable) return 503;
  if (*failure == Failure::kOverloaded) return 429;
  if (*failure == Failure::kMissing) return 404;
  return *failure == Failure::kSlow ? 504 : 502;
}

bool costs_a_repeat(Failure failure) {
  return failure != Failure::kUnreachable && failure != Failure::kOverloaded && failure != Failure::kDenied &&
         failure != Failure::kMissing;
}

}  // namespace

Router::Router(const RouterSettings& settings) : settings_(settings), repeats_left_(kMostRepeats) {
  for (const auto& upstream : settings.upstreams)
    upstreams_.push_back({.health = Health(upstream), .told = upstream.told});
}

std::vector<RouterAction> Router::step(const RouterEvent& event, Time now) {
  Actions actions;
  std::visit(Overloaded{[&](const Arrived& arrived) { arrive(arrived, now, actions); },
                        [&](const Answering& answering) {
                          const auto found = requests_.find(answering.request);
                          if (found == requests_.end() || !found->second.upstream) return;
                          Request& request = found->second;
                          Upstream& upstream = upstreams_[*request.upstream];
                          upstream.health.note(answering.rate, now);
                          upstream.health.answered(now - request.sent_at, usual(&Health::first_byte_seconds));
                        },
                        [&](const Answered& answered) {
                          const auto found = requests_.find(answered.request);
                          if (found == requests_.end() || !found->second.upstream) return;
                          Upstream& upstream = upstreams_[*found->second.upstream];
                          upstream.health.ended(to_seconds(now - found->second.sent_at));
                          ++upstream.counters.answered;
                          end(answered.request, now, actions);
                        },
                        [&](const Failed& failed) { fail_one(failed, now, actions); },
                        [&](const Gone& gone) {
                          const auto found = requests_.find(gone.request);
                          if (found == requests_.end()) return;
                          if (found->second.upstream) upstreams_[*found->second.upstream].health.ended(std::nullopt);
                          end(gone.request, now, actions);
                        },
                        [&](const Probed& probed) { take_probe_answer(probed, now, actions); },
                        [&](const ProcessChange& told) { take_changes(told, now, actions); },
                        [&](const Tick&) { tick(now, actions); }},
             event);
  count_slots(now, actions);
  place_waiting(now, actions);
  return actions;
}

void Router::arrive(const Arrived& arrived, Time now, Actions& actions) {
  repeats_left_ = std::min(kMostRepeats, repeats_left_ + kRepeatsPerRequest);
  Request request{.terms = arrived, .arrived = now, .waits_since = now};
  if (!queues_.contains(arrived.model)) {
    actions.emplace_back(Refuse{.request = arrived.request, .status = 404, .why = "there is no such model"});
    return;
  }
  Time soonest = Time::max();
  for (size_t i = 0; i < upstreams_.size(); ++i) {
    if (serves(upstreams_[i], arrived, i) && !upstreams_[i].failed)
      soonest = std::min(soonest, upstreams_[i].health.opens_at(1, now));
  }
  if (soonest == Time::max() || soonest - now > settings_.longest_wait) {
    actions.emplace_back(refusal_of(arrived.request, request, now));
    return;
  }
  requests_.emplace(arrived.request, std::move(request));
  admit(arrived.model, serve::Offer{.answers = {arrived.request}, .priority = arrived.priority, .key = arrived.key},
        now, actions);
}

void Router::admit(const std::string& model, const serve::AdmissionEvent& event, Time now, Actions& actions) {
  const auto queue = queues_.find(model);
  if (queue == queues_.end()) return;
  const auto admitted = queue->second.step(event, now);
  if (admitted.refused) {
    const RequestNumber number = std::get<serve::Offer>(event).answers.front();
    actions.emplace_back(Refuse{.request = number,
                                .status = 429,
                                .retry_after = admitted.refused,
                                .why = "too many requests wait for this model"});
    requests_.erase(number);
  }
  for (const RequestNumber number : admitted.start) {
    const auto found = requests_.find(number);
    if (found == requests_.end()) continue;
    found->second.started = true;
    if (!place(number, found->second, now, actions)) unplaced_.push_back(number);
  }
}

void Router::count_slots(Time now, Actions& actions) {
  std::vector<int> limits;
  for (const Upstream& upstream : upstreams_)
    limits.push_back(upstream.health.open(1, now) ? static_cast<int>(upstream.health.limit()) : 0);
  // There may be thousands of models, and most steps change nothing for them.
  if (limits == limits_) return;
  limits_ = limits;
  for (auto& [model, queue] : queues_) {
    int slots = 0;
    for (size_t i = 0; i < upstreams_.size(); ++i) {
      if (std::ranges::binary_search(upstreams_[i].models, model)) slots += limits[i];
    }
    admit(model, serve::Slots{slots}, now, actions);
  }
}

bool Router::serves(const Upstream& upstream, const Arrived& terms, size_t index) const {
  return (!terms.only || *terms.only == index) && std::ranges::binary_search(upstream.models, terms.model);
}

std::optional<size_t> Router::best_for(const Request& request, Time now, size_t& found) const {
  std::vector<size_t> open;
  bool any_room = false;
  for (size_t i = 0; i < upstreams_.size(); ++i) {
    const Upstream& upstream = upstreams_[i];
    if ((request.tried >> i & 1) != 0 || !serves(upstream, request.terms, i) ||
        !upstream.health.open(request.terms.tokens, now))
      continue;
    open.push_back(i);
    any_room = any_room || upstream.health.has_room();
  }
  // What was begun elsewhere is not held up; all else waits for room.
  if (open.empty() || (!any_room && request.attempts == 0)) return std::nullopt;
  if (any_room) std::erase_if(open, [&](size_t i) { return !upstreams_[i].health.has_room(); });
  const auto& prefix = request.terms.prefix;
  const auto lengths = prefixes_.matches(prefix, upstreams_.size());
  const auto running = [&](size_t i) { return upstreams_[i].health.in_flight(); };
  int all_running = 1;
  for (const size_t i : open) all_running += running(i);
  const double bound = kMostOfMean * all_running / static_cast<double>(open.size()) + 1;
  const double usual_seconds = usual(&Health::seconds);
  // The order of upstreams is another for each beginning, so that new ones are spread.
  const auto turn = [&](size_t i) { return ((prefix.empty() ? 0 : prefix.front()) + i) % upstreams_.size(); };
  const auto cost = [&](size_t i) {
    const Health& health = upstreams_[i].health;
    const double seconds = health.seconds() > 0 ? health.seconds() : usual_seconds > 0 ? usual_seconds : 1;
    return std::tuple((health.in_flight() + kIdle) / std::max(1.0, health.limit()) * coarse(seconds), turn(i));
  };
  std::optional<size_t> best;
  for (const size_t i : open) {
    if (running(i) + 1 > bound || static_cast<double>(lengths[i]) < kLeastFound * static_cast<double>(prefix.size()) ||
        lengths[i] == 0)
      continue;
    if (!best || lengths[i] > lengths[*best] || (lengths[i] == lengths[*best] && cost(i) < cost(*best))) best = i;
  }
  if (!best) best = *std::ranges::min_element(open, {}, cost);
  found = lengths[*best];
  return best;
}

// Those that began to wait first come first.
void Router::place_waiting(Time now, Actions& actions) {
  std::erase_if(unplaced_, [&](RequestNumber number) { return place(number, requests_.at(number), now, actions); });
}

bool Router::place(RequestNumber number, Request& request, Time now, Actions& actions) {
  if (request.losses >= kMostLosses) return false;
  size_t found = 0;
  const auto best = best_for(request, now, found);
  if (!best) return false;
  Upstream& upstream = upstreams_[*best];
  request.upstream = best;
  request.sent_at = now;
  upstream.health.sent(request.terms.tokens, now);
  ++upstream.counters.sent;
  if (request.attempts > 0) ++upstream.counters.repeated;
  ++request.attempts;
  upstream.counters.prefix_asked += request.terms.prefix.size();
  upstream.counters.prefix_found += found;
  prefixes_.add(request.terms.prefix, *best);
  actions.emplace_back(Send{.request = number, .upstream = *best});
  return true;
}

Refuse Router::told_refusal_of(RequestNumber number, const Request& request, const Upstream& upstream, Time now) const {
  Refuse refuse{.request = number, .status = 503, .why = upstream.why};
  if (refuse.why.empty())
    refuse.why = fmt::format("the process of the model \"{}\" does not answer", request.terms.model.substr(0, 200));
  if (request.losses > 0) refuse.why += "; this request was with it when it ended";
  if (!upstream.failed) refuse.retry_after = std::max<Duration>(1s, upstream.health.opens_at(1, now) - now);
  return refuse;
}

Refuse Router::refusal_of(RequestNumber number, const Request& request, Time now) const {
  Refuse refuse{.request = number, .status = status_of(request.last)};
  Time soonest = Time::max();
  bool all_held = true;
  for (size_t i = 0; i < upstreams_.size(); ++i) {
    if (!serves(upstreams_[i], request.terms, i)) continue;
    if (upstreams_[i].told) return told_refusal_of(number, request, upstreams_[i], now);
    soonest = std::min(soonest, upstreams_[i].health.opens_at(1, now));
    all_held = all_held && upstreams_[i].health.known() && !upstreams_[i].health.broken();
  }
  if (!request.last && all_held && soonest != Time::max()) refuse.status = 429;
  if (refuse.status == 429 || refuse.status == 503) {
    const Duration wait = soonest == Time::max() ? settings_.longest_wait : soonest - now;
    refuse.retry_after = std::max<Duration>(1s, wait);
  }
  switch (refuse.status) {
    case 404:
      refuse.why = fmt::format("the upstreams that listed the model \"{}\" say that they have it no more",
                               request.terms.model.substr(0, 200));
      break;
    case 429:
      refuse.why = "all upstreams of this model have as much as they take";
      break;
    case 504:
      refuse.why = "no upstream began to answer in time";
      break;
    case 502:
      refuse.why = fmt::format("the upstreams of this model failed, the last one as {}", name_of(*request.last));
      break;
    default:
      refuse.why = request.terms.only ? "the upstream that has what this goes on from cannot be reached"
                                      : "no upstream of this model can be reached";
  }
  return refuse;
}

void Router::fail_one(const Failed& failed, Time now, Actions& actions) {
  const auto found = requests_.find(failed.request);
  if (found == requests_.end() || !found->second.upstream) return;
  Request& request = found->second;
  const size_t index = *request.upstream;
  Upstream& upstream = upstreams_[index];
  request.upstream.reset();
  upstream.health.ended(std::nullopt);
  upstream.health.note(failed.rate, now);
  ++upstream.counters.failures[name_of(failed.failure)];
  if (upstream.health.failed(failed.failure, failed.retry_after, now)) {
    actions.emplace_back(Turned{.upstream = index, .open = false, .failure = failed.failure});
    if (failed.failure == Failure::kUnreachable) prefixes_.forget(index);
  }
  if (failed.begun) return end(failed.request, now, actions);
  request.last = failed.failure;
  if (upstream.told && waits_again(failed, request, now)) return;
  request.tried |= uint64_t{1} << index;
  const bool costs = costs_a_repeat(failed.failure);
  if (request.attempts < settings_.most_attempts && (!costs || repeats_left_ >= 1)) {
    if (place(failed.request, request, now, actions)) {
      if (costs) repeats_left_ -= 1;
      return;
    }
  }
  actions.emplace_back(refusal_of(failed.request, request, now));
  end(failed.request, now, actions);
}

// Whether a request waits for an upstream that is told of: what nobody has heard of is sent again when it is back,
// once. A loss it is refused, when the upstream's owner has said why.
bool Router::waits_again(const Failed& failed, Request& request, Time now) {
  if (failed.failure == Failure::kMissing || failed.failure == Failure::kOverloaded) return false;
  // One that could not be connected to has not had it.
  if (failed.failure != Failure::kUnreachable) ++request.losses;
  if (request.waits_since == request.arrived) request.waits_since = now;
  unplaced_.push_back(failed.request);
  return true;
}

void Router::end(RequestNumber number, Time now, Actions& actions) {
  const auto found = requests_.find(number);
  const std::string model = found->second.terms.model;
  requests_.erase(found);
  std::erase(unplaced_, number);
  admit(model, serve::Ended{number}, now, actions);
}

void Router::take_probe_answer(const Probed& probed, Time now, Actions& actions) {
  Upstream& upstream = upstreams_[probed.upstream];
  const bool was_open = upstream.health.known() && !upstream.health.broken();
  upstream.tried = true;
  if (upstream.health.probed(probed.models.has_value(), now))
    actions.emplace_back(Turned{.upstream = probed.upstream, .open = true});
  if (was_open && upstream.health.broken()) {
    prefixes_.forget(probed.upstream);
    actions.emplace_back(Turned{.upstream = probed.upstream, .open = false, .failure = Failure::kUnreachable});
  }
  if (probed.models) set_models(upstream, *probed.models);
}

void Router::set_models(Upstream& upstream, std::vector<std::string> models) {
  std::ranges::sort(models);
  models.erase(std::unique(models.begin(), models.end()), models.end());
  if (models == upstream.models) return;
  upstream.models = std::move(models);
  limits_.clear();  // counted anew
  for (const std::string& model : upstream.models)
    queues_.try_emplace(model, serve::AdmissionSettings{.slots = 0, .queue = settings_.queue});
  std::erase_if(queues_, [&](const auto& one) {
    const auto has = [&](const Upstream& other) { return std::ranges::binary_search(other.models, one.first); };
    return one.second.running() == 0 && one.second.waiting() == 0 && std::ranges::none_of(upstreams_, has);
  });
}

void Router::take_changes(const ProcessChange& told, Time now, Actions& actions) {
  Upstream& upstream = upstreams_[told.upstream];
  upstream.tried = true;
  upstream.failed = told.state == ProcessChange::State::kFailed;
  upstream.why = told.why;
  set_models(upstream, told.models);
  if (told.state == ProcessChange::State::kThere) {
    upstream.health.restored(told.as_of);
  } else if (upstream.health.lost(told.expected, now)) {
    prefixes_.forget(told.upstream);
  }
  refuse_hopeless(told, now, actions);
}

// Those that were lost with it too often, and those whose upstreams have all failed for good.
void Router::refuse_hopeless(const ProcessChange& told, Time now, Actions& actions) {
  std::vector<RequestNumber> hopeless;
  for (const auto& [number, request] : requests_) {
    if (request.upstream || !serves(upstreams_[told.upstream], request.terms, told.upstream)) continue;
    if (request.losses >= kMostLosses || upstreams_[told.upstream].failed) hopeless.push_back(number);
  }
  for (const RequestNumber number : hopeless) {
    actions.emplace_back(refusal_of(number, requests_.at(number), now));
    end(number, now, actions);
  }
}

void Router::tick(Time now, Actions& actions) {
  for (size_t i = 0; i < upstreams_.size(); ++i) {
    if (upstreams_[i].health.take_probe(now)) actions.emplace_back(Probe{.upstream = i});
  }
  if (now - forgot_ >= kForgetEvery) {
    forgot_ = now;
    const double seconds = usual(&Health::seconds);
    for (Upstream& upstream : upstreams_) upstream.health.forget_slowly(seconds);
  }
  std::set<RequestNumber> late;
  for (const auto& [number, request] : requests_) {
    if (request.upstream || now - request.waits_since < settings_.longest_wait) continue;
    const auto open = [&, &terms = request.terms](size_t i) {
      return serves(upstreams_[i], terms, i) && upstreams_[i].health.open(1, now);
    };
    bool any = false;
    for (size_t i = 0; i < upstreams_.size(); ++i) any = any || open(i);
    if (!any) late.insert(number);
  }
  for (const RequestNumber number : late) {
    actions.emplace_back(refusal_of(number, requests_.at(number), now));
    end(number, now, actions);
  }
}

double Router::usual(double (Health::*of)() const) const {
  double sum = 0;
  int known = 0;
  for (const Upstream& upstream : upstreams_) {
    const double value = (upstream.health.*of)();
    sum += value;
    known += value > 0 ? 1 : 0;
  }
  return known == 0 ? 0 : sum / known;
}

std::vector<std::string> Router::all_models() const {
  std::set<std::string> names;
  for (const Upstream& upstream : upstreams_) names.insert(upstream.models.begin(), upstream.models.end());
  return {names.begin(), names.end()};
}

bool Router::any_open(Time now) const {
  return std::ranges::any_of(upstreams_, [&](const Upstream& upstream) { return upstream.health.open(1, now); });
}

bool Router::all_tried() const { return std::ranges::all_of(upstreams_, &Upstream::tried); }

size_t Router::waiting() const {
  size_t waiting = unplaced_.size();
  for (const auto& [model, queue] : queues_) waiting += static_cast<size_t>(queue.waiting());
  return waiting;
}

}  // namespace tandem::gateway
