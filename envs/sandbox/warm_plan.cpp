#include "envs/sandbox/warm_plan.h"

#include <algorithm>

namespace tandem::envs {

void WarmPlan::asked(Time now) {
  last_asked_ = now;
  if (in_window_ == 0 || now - window_began_ >= bounds_.window) {
    in_window_ = 0;
    window_began_ = now;
  }
  ++in_window_;
  if (in_window_ >= burst_ || now - burst_at_ >= bounds_.memory) {
    burst_ = in_window_;
    burst_at_ = now;
  }
  if (ready_ > 0) --ready_;
}

void WarmPlan::made() {
  --making_;
  ++ready_;
}

void WarmPlan::lost() {
  if (ready_ > 0) --ready_;
}

void WarmPlan::failed(Time now) {
  --making_;
  paused_until_ = now + bounds_.pause;
}

size_t WarmPlan::wanted(Time now) const {
  const size_t recent = now - burst_at_ < bounds_.memory ? burst_ : 0;
  return std::clamp(recent, bounds_.least, std::max(bounds_.least, bounds_.most));
}

WarmPlan::Step WarmPlan::step(Time now) {
  Step step;
  const size_t want = wanted(now);
  if (ready_ > want) {
    step.let_go = ready_ - want;
    ready_ = want;
  }
  if (paused_until_ && now >= *paused_until_) paused_until_.reset();
  if (paused_until_) {
    step.again = paused_until_;
  } else if (ready_ + making_ < want && making_ < bounds_.at_once) {
    step.make = std::min(want - ready_ - making_, bounds_.at_once - making_);
    making_ += step.make;
  }
  if (!step.again && want > bounds_.least) step.again = burst_at_ + bounds_.memory;
  return step;
}

}  // namespace tandem::envs
