// How many sandboxes of one kind are kept ready, decided from who asked for some, and when. Pure: `now` comes with the
// event.
//
// As many are wanted as were asked for in the busiest window of late, between bounds: whoever comes in such a burst
// again finds all of them made. A burst is forgotten after a while without one like it. Where none can be made the plan
// waits before it tries again.
//
// Thread safety: none. Invariants: making() <= bounds.at_once; after a step ready() <= wanted(); no step both makes
// some and lets some go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace tandem::envs {

struct WarmBounds {
  size_t least = 0, most = 8;
  size_t at_once = 1;  // that are being made
  Duration window = std::chrono::milliseconds(250);
  Duration memory = std::chrono::seconds(30);  // for which a burst counts
  Duration pause = std::chrono::seconds(1);    // after one could not be made
};

class WarmPlan {
 public:
  explicit WarmPlan(const WarmBounds& bounds) : bounds_(bounds) {}

  void asked(Time now);  // somebody wants one, and takes one that is ready where there is one
  void made();           // one of those that were being made is ready
  void lost();           // one that was ready is not any more
  void failed(Time now);

  struct Step {
    size_t make = 0, let_go = 0;  // begin so many now, and end so many of those that are ready
    std::optional<Time> again;    // when to ask again though nothing happens
  };
  // Returns the next action, which counts as done.
  Step step(Time now);

  size_t wanted(Time now) const;
  size_t ready() const { return ready_; }
  size_t making() const { return making_; }
  Time last_asked() const { return last_asked_; }

 private:
  WarmBounds bounds_;
  size_t ready_ = 0, making_ = 0;
  size_t burst_ = 0;      // asked for in the busiest window that counts
  Time burst_at_{};       // when it was last reached
  size_t in_window_ = 0;  // asked for since the window began
  Time window_began_{};
  Time last_asked_{};
  std::optional<Time> paused_until_;
};

}  // namespace tandem::envs
