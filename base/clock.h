// Time values and an injected clock, so that tests and simulations control time.
#pragma once

#include <chrono>
#include <cstdint>

namespace tandem {

using Duration = std::chrono::nanoseconds;
// Nanoseconds on the machine's monotonic clock; comparable between processes of one machine, not between machines.
using Time = std::chrono::time_point<std::chrono::steady_clock, Duration>;

inline double to_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
inline Duration from_seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() const = 0;
  virtual double unix_seconds() const = 0;  // wall clock, for records that people read
};

class SystemClock final : public Clock {
 public:
  Time now() const override { return std::chrono::steady_clock::now(); }
  double unix_seconds() const override {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  }
};

class ManualClock final : public Clock {
 public:
  Time now() const override { return now_; }
  double unix_seconds() const override { return to_seconds(now_.time_since_epoch()); }
  void advance(Duration duration) { now_ += duration; }

 private:
  Time now_{};
};

}  // namespace tandem
