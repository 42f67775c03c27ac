// The most of something that were in use of late. Pure: `now` comes with the event, and never goes back.
//
// A use counts for at least one window and at most two. Thread safety: none.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/clock.h"

namespace tandem::envs {

class RecentUse {
 public:
  explicit RecentUse(Duration window = std::chrono::seconds(30)) : window_(window) {}

  void used(size_t count, Time now) {
    turn(now);
    current_ = std::max(current_, count);
  }

  size_t most(Time now) {
    turn(now);
    return std::max(current_, previous_);
  }

 private:
  void turn(Time now) {
    if (now - began_ < window_) return;
    previous_ = now - began_ < 2 * window_ ? current_ : 0;
    current_ = 0;
    began_ = now;
  }

  Duration window_;
  size_t current_ = 0, previous_ = 0;
  Time began_{};
};

}  // namespace tandem::envs
