#include "gateway/health.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace tandem::gateway {

using namespace std::chrono_literals;

namespace {

constexpr double kFirstLimit = 4;      // of a server that was never broken
constexpr int kFailuresThatBreak = 3;  // in a row
constexpr int kAnswersThatHeal = 10;   // after a break, before the next back-off begins at the least again
constexpr double kTooSlow = 2;         // times the usual: the limit does not grow
constexpr double kSmoothing = 0.1, kForgetting = 0.02;
constexpr Duration kFirstBackOff = 1s, kMostBackOff = 30s, kDeniedFor = 60s, kMostRefusedFor = 60s;
// Refusals of one wave of requests halve the limit once.
constexpr Duration kOneWave = 1s;
constexpr Duration kBetweenProbes = 1s;

void smooth(double& value, double sample) { value = value == 0 ? sample : value + kSmoothing * (sample - value); }

Duration doubled(Duration first, int times, Duration most) {
  for (; times > 0 && first < most; --times) first *= 2;
  return std::min(first, most);
}

}  // namespace

std::string_view name_of(Failure failure) {
  switch (failure) {
    case Failure::kUnreachable:
      return "unreachable";
    case Failure::kSlow:
      return "slow";
    case Failure::kFaulty:
      return "faulty";
    case Failure::kBroken:
      return "broken";
    case Failure::kOverloaded:
      return "overloaded";
    case Failure::kDenied:
      return "denied";
    case Failure::kMissing:
      return "missing";
  }
  return "";
}

double Health::Allowance::left_at(Time now) const {
  return std::min(rate, left + rate / 60 * to_seconds(std::max(now - at, Duration{0})));
}
Duration Health::Allowance::until(double amount, Time now) const {
  if (rate == 0) return Duration{0};
  const double missing = std::min(amount, rate) - left_at(now);
  return missing <= 0 ? Duration{0} : from_seconds(missing * 60 / rate);
}
void Health::Allowance::take(double amount, Time now) {
  if (rate == 0) return;
  left = left_at(now) - amount;
  at = now;
}

Health::Health(const HealthSettings& settings)
    : settings_(settings),
      limit_(settings.told ? settings.slots : std::min<double>(kFirstLimit, settings.slots)),
      threshold_(settings.slots),
      requests_{.rate = settings.requests_per_minute, .left = settings.requests_per_minute},
      tokens_{.rate = settings.tokens_per_minute, .left = settings.tokens_per_minute} {}

bool Health::open(double tokens, Time now) const { return state_ == State::kOpen && opens_at(tokens, now) <= now; }

Time Health::opens_at(double tokens, Time now) const {
  Time at = std::max(now, held_until_);
  if (state_ != State::kOpen) at = std::max(at, probe_at_);
  at = std::max(at, now + requests_.until(1, now));
  at = std::max(at, now + tokens_.until(tokens, now));
  if (news_.requests_left && *news_.requests_left < 1) at = std::max(at, news_at_ + news_.requests_reset);
  if (news_.tokens_left && *news_.tokens_left < tokens) at = std::max(at, news_at_ + news_.tokens_reset);
  return at;
}

void Health::sent(double tokens, Time now) {
  ++in_flight_;
  requests_.take(1, now);
  tokens_.take(tokens, now);
  if (news_.requests_left) *news_.requests_left -= 1;
  if (news_.tokens_left) *news_.tokens_left -= tokens;
}

void Health::answered(Duration first_byte, double usual) {
  failures_ = refusals_ = 0;
  const double seconds = to_seconds(first_byte);
  smooth(first_byte_, seconds);
  if (++answers_since_ >= kAnswersThatHeal) breaks_ = 0;
  // The limit says something only where it binds, and a server that is slower than others has enough.
  if (in_flight_ < limit_ / 2 || (usual > 0 && seconds > kTooSlow * usual)) return;
  limit_ = std::min<double>(settings_.slots, limit_ + (limit_ < threshold_ ? 1 : 1 / limit_));
}

void Health::ended(std::optional<double> seconds) {
  --in_flight_;
  if (seconds) smooth(seconds_, *seconds);
}

bool Health::failed(Failure failure, std::optional<Duration> retry_after, Time now) {
  // Those that were sent before the circuit broke say nothing new.
  if (state_ == State::kBroken) return false;
  if (settings_.told) return failure != Failure::kMissing && failure != Failure::kOverloaded && lost(now, now);
  switch (failure) {
    case Failure::kOverloaded: {
      held_until_ = std::max(held_until_, now + retry_after.value_or(doubled(1s, refusals_, kMostRefusedFor)));
      ++refusals_;
      if (now - halved_ < kOneWave) return false;
      halved_ = now;
      limit_ = threshold_ = std::max(1.0, std::floor(std::min<double>(limit_, in_flight_) / 2));
      return false;
    }
    case Failure::kDenied:
      break_circuit(now, kDeniedFor);
      return true;
    case Failure::kMissing:
      // Its list says what it has by now.
      probe_at_ = std::min(probe_at_, std::max(now, probed_at_ + kBetweenProbes));
      return false;
    case Failure::kUnreachable:
      break_circuit(now, kFirstBackOff);
      return true;
    default:
      if (++failures_ < kFailuresThatBreak) return false;
      break_circuit(now, kFirstBackOff);
      return true;
  }
}

void Health::break_circuit(Time now, Duration least) {
  if (state_ == State::kOpen) threshold_ = std::max(2.0, limit_ / 2);
  state_ = state_ == State::kUnknown ? State::kUnknown : State::kBroken;
  // Upstreams that went together do not all come back in one moment.
  const double jitter = 0.75 + 0.5 * uniform_at(settings_.seed, static_cast<uint64_t>(breaks_));
  // One that was never there may be loading its model.
  const Duration most = state_ == State::kUnknown ? settings_.probe_every : kMostBackOff;
  probe_at_ = now + from_seconds(jitter * to_seconds(doubled(least, breaks_, std::max(least, most))));
  breaks_ = std::min(breaks_ + 1, 16);
  failures_ = answers_since_ = 0;
  limit_ = 1;
}

void Health::note(const RateNews& news, Time now) {
  if (!news.requests_left && !news.tokens_left) return;
  news_ = news;
  news_at_ = now;
}

bool Health::take_probe(Time now) {
  if (settings_.told || probing_ || now < probe_at_) return false;
  probing_ = true;
  probed_at_ = now;
  probe_at_ = now + settings_.probe_every;
  return true;
}

bool Health::probed(bool answered, Time now) {
  probing_ = false;
  if (!answered) {
    // One that answers requests is there, whatever becomes of its list.
    if (state_ != State::kOpen || in_flight_ == 0) break_circuit(now, kFirstBackOff);
    return false;
  }
  probe_at_ = std::max(probe_at_, now + settings_.probe_every);
  if (state_ == State::kOpen) return false;
  if (state_ == State::kUnknown) {
    limit_ = std::min<double>(kFirstLimit, settings_.slots);
    threshold_ = settings_.slots;
    breaks_ = 0;
  }
  state_ = State::kOpen;
  return true;
}

bool Health::restored(Time as_of) {
  if (state_ == State::kOpen || as_of <= lost_at_) return false;
  state_ = State::kOpen;
  probe_at_ = Time{};
  return true;
}

bool Health::lost(Time expected, Time now) {
  probe_at_ = expected;
  if (state_ == State::kBroken) return false;
  const bool was_open = state_ == State::kOpen;
  state_ = State::kBroken;
  lost_at_ = now;
  return was_open;
}

void Health::forget_slowly(double usual) {
  if (seconds_ > 0 && usual > 0) seconds_ += kForgetting * (usual - seconds_);
}

}  // namespace tandem::gateway
