#include "wire/attempts.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace tandem::wire {
namespace {

using namespace std::chrono_literals;

constexpr Duration kMinute = 60s;

}  // namespace

AttemptAction Attempts::step(const AttemptEvent& event, Time now) {
  if (std::holds_alternative<RequestWanted>(event)) return begin(now);
  if (std::holds_alternative<AttemptAnswered>(event)) return AllWell{};
  return failed(std::get<AttemptFailed>(event), now);
}

AttemptAction Attempts::begin(Time now) {
  servers_tried_ = 0;
  tries_ = 0;
  number_ = 0;
  return send(now);
}

AttemptAction Attempts::failed(const AttemptFailed& failure, Time now) {
  if (!failure.passing) return GiveUp{};
  const bool too_long = failure.retry_after && *failure.retry_after > settings_.longest_retry_after;
  if (tries_ >= settings_.tries || too_long) {
    server_ = (server_ + 1) % settings_.servers;
    tries_ = 0;
    if (++servers_tried_ >= settings_.servers) return GiveUp{};
    return send(now);
  }
  // Half of the wait is drawn, so that those who failed together do not come back together.
  const double doubled = to_seconds(settings_.first_wait) * std::pow(2.0, tries_ - 1);
  const double longest = std::min(doubled, to_seconds(settings_.longest_wait));
  Duration wait = from_seconds(longest * (0.5 + 0.5 * uniform_at(settings_.seed, draws_++)));
  if (failure.retry_after) wait = std::max(wait, *failure.retry_after);
  return send(now + wait);
}

AttemptAction Attempts::send(Time at) {
  ++tries_;
  ++number_;
  if (settings_.per_minute > 0) {
    const auto most = static_cast<size_t>(settings_.per_minute);
    if (sent_.size() >= most) at = std::max(at, sent_[sent_.size() - most] + kMinute);
    sent_.push_back(at);
    if (sent_.size() > most) sent_.pop_front();
  }
  return SendAt{server_, at, number_};
}

}  // namespace tandem::wire
