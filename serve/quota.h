// How much each key may ask for: requests a minute, tokens a minute, tokens a day.
//
// An allowance refills evenly and holds what comes in its period. Tokens are counted as a request ends, when they are
// known: an allowance may be overdrawn by what has begun, and nothing begins before it is in credit again. Keys whose
// allowances are full are forgotten.
//
// Pure state machine; thread safety: none.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "serve/keys.h"

namespace tandem::serve {

class Quota {
 public:
  struct Refusal {
    Duration retry_after{};
    std::string says;  // "60 requests a minute"
  };
  // Nothing where the request may be taken on; it is counted then.
  std::optional<Refusal> ask(const KeyTerms& key, Time now);
  void charge(const KeyTerms& key, double tokens, Time now);
  size_t accounts() const { return accounts_.size(); }

 private:
  struct Allowance {
    double limit = 0, left = 0;  // limit 0: none
    Duration period{};
    Time at{};
    void refill(double new_limit, Duration new_period, Time now);
    bool full() const { return left >= limit; }
    // Until `amount` is left.
    Duration until(double amount) const;
  };
  struct Account {
    Allowance requests, minute, day;
  };
  Account& account_of(const KeyTerms& key, Time now);
  void forget_full(Time now);

  std::map<std::string, Account> accounts_;
  size_t forget_at_ = 1024;  // accounts
};

}  // namespace tandem::serve
