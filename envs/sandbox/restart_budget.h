// How often something that was killed is started again: kMost times within kWindow. Pure: `now` comes with the
// question, and never goes back. Thread safety: none.
#pragma once

#include <cstddef>
#include <deque>

#include "base/clock.h"

namespace tandem::envs {

class RestartBudget {
 public:
  static constexpr size_t kMost = 16;
  static constexpr std::chrono::seconds kWindow{10};

  // Whether it may be started now; counts as done where it may.
  bool take(Time now) {
    while (!taken_.empty() && now - taken_.front() >= kWindow) taken_.pop_front();
    if (taken_.size() >= kMost) return false;
    taken_.push_back(now);
    return true;
  }

 private:
  std::deque<Time> taken_;
};

}  // namespace tandem::envs
