#include "serve/quota.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tandem::serve {
namespace {

using namespace std::chrono_literals;

constexpr Duration kMinute = 60s, kDay = 86400s;
constexpr double kLongestWait = 86400.0 * 365;  // seconds; a Duration ends at some hundred years

}  // namespace

void Quota::Allowance::refill(double new_limit, Duration new_period, Time now) {
  // One that is new, or is limited for the first time, is full.
  if (limit == 0) left = new_limit;
  limit = new_limit;
  period = new_period;
  if (at != Time{} && now > at) left += limit * (to_seconds(now - at) / to_seconds(period));
  left = std::min(left, limit);
  at = now;
}

Duration Quota::Allowance::until(double amount) const {
  return from_seconds(std::clamp((amount - left) / limit * to_seconds(period), 0.0, kLongestWait));
}

Quota::Account& Quota::account_of(const KeyTerms& key, Time now) {
  if (accounts_.size() >= forget_at_) forget_full(now);
  Account& account = accounts_[key.name];
  account.requests.refill(key.requests_per_minute, kMinute, now);
  account.minute.refill(key.tokens_per_minute, kMinute, now);
  account.day.refill(key.tokens_per_day, kDay, now);
  return account;
}

void Quota::forget_full(Time now) {
  for (auto it = accounts_.begin(); it != accounts_.end();) {
    Account& a = it->second;
    for (Allowance* const one : {&a.requests, &a.minute, &a.day}) one->refill(one->limit, one->period, now);
    it = a.requests.full() && a.minute.full() && a.day.full() ? accounts_.erase(it) : std::next(it);
  }
  // Each account is looked at seldom, however many stay.
  forget_at_ = std::max<size_t>(1024, 2 * accounts_.size());
}

std::optional<Quota::Refusal> Quota::ask(const KeyTerms& key, Time now) {
  if (key.requests_per_minute == 0 && key.tokens_per_minute == 0 && key.tokens_per_day == 0) return std::nullopt;
  Account& account = account_of(key, now);
  struct Check {
    const Allowance& allowance;
    double needed;
    const char* of;
  };
  // A limit below one request a minute lets one through when it is full.
  const double whole = std::min(1.0, account.requests.limit);
  std::optional<Refusal> refusal;
  for (const auto& [allowance, needed, of] :
       std::array{Check{account.requests, whole, "requests a minute"}, Check{account.minute, 0, "tokens a minute"},
                  Check{account.day, 0, "tokens a day"}}) {
    if (allowance.limit == 0 || (needed > 0 ? allowance.left >= needed : allowance.left > 0)) continue;
    const Duration wait = std::max<Duration>(allowance.until(needed), 1s);
    if (!refusal || wait > refusal->retry_after) refusal = {wait, fmt::format("{} {}", allowance.limit, of)};
  }
  if (!refusal && account.requests.limit > 0) account.requests.left -= 1;
  return refusal;
}

void Quota::charge(const KeyTerms& key, double tokens, Time now) {
  if (key.tokens_per_minute == 0 && key.tokens_per_day == 0) return;
  Account& account = account_of(key, now);
  for (Allowance* const one : {&account.minute, &account.day}) {
    if (one->limit > 0) one->left -= tokens;
  }
}

}  // namespace tandem::serve
