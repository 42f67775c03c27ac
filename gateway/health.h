// How much one upstream gets now, by how it has answered.
//
// As in TCP's congestion control (Jacobson 1988): it begins with few requests at once and gets one more with each
// answer, until it refuses one; then half, and slowly more. Failures in a row break the circuit: it gets nothing, is
// asked for its models after a back-off that doubles, and begins with one request when it answers. What it says of its
// own rate limits is kept.
//
// Pure state machine; thread safety: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "gateway/rate_news.h"

namespace tandem::gateway {

enum class Failure : uint8_t {
  kUnreachable,  // nobody is there, or the connection broke before an answer
  kSlow,         // no answer began in time
  kFaulty,       // 500, 502, 504, or an answer that is none
  kBroken,       // its answer ended in the middle
  kOverloaded,   // 429, 503, 529: it asks to come again
  kDenied,       // 401, 402, 403: our key
  kMissing,      // it has not the model
};
std::string_view name_of(Failure failure);

struct HealthSettings {
  int slots = 64;
  double requests_per_minute = 0, tokens_per_minute = 0;  // 0: no limit
  Duration probe_every = std::chrono::seconds(5);
  uint64_t seed = 0;  // of the jitter
  // Its owner says whether it is there (`restored`, `lost`): it is not probed, failures break the circuit until the
  // owner is heard, and all of its slots are used from the start.
  bool told = false;
};

class Health {
 public:
  explicit Health(const HealthSettings& settings);

  // Whether it may get a request of about so many tokens now, the number that it has aside.
  bool open(double tokens, Time now) const;
  // Whether one more is within its limit.
  bool has_room() const { return in_flight_ + 1 <= limit_; }
  // When it may be open again; now where it is.
  Time opens_at(double tokens, Time now) const;
  bool broken() const { return state_ == State::kBroken; }
  bool known() const { return state_ != State::kUnknown; }  // it has answered once

  void sent(double tokens, Time now);
  // The head of an answer has come. `usual`: seconds to it elsewhere; 0: unknown.
  void answered(Duration first_byte, double usual);
  // One that was sent has ended, whatever came of it; `seconds` of one that was answered whole.
  void ended(std::optional<double> seconds);
  // True where that broke the circuit.
  bool failed(Failure failure, std::optional<Duration> retry_after, Time now);
  void note(const RateNews& news, Time now);

  // It is to be asked for its models now; the answer goes to `probed`, which gives true where it came back.
  bool take_probe(Time now);
  bool probed(bool answered, Time now);
  // For an upstream with `told`: it answered at `as_of`. True where that opens the circuit; later failures are newer.
  bool restored(Time as_of);
  // It is away, and back at about `expected`: true where it was open.
  bool lost(Time expected, Time now);

  int in_flight() const { return in_flight_; }
  double limit() const { return limit_; }
  // Smoothed seconds of an answer; 0: unknown.
  double seconds() const { return seconds_; }
  double first_byte_seconds() const { return first_byte_; }
  // Towards what others need, so that one that was slow once is tried again.
  void forget_slowly(double usual);

 private:
  enum class State : uint8_t { kUnknown, kOpen, kBroken };
  struct Allowance {
    double rate = 0, left = 0;  // a minute; 0: no limit
    Time at{};
    double left_at(Time now) const;
    Duration until(double amount, Time now) const;
    void take(double amount, Time now);
  };
  void break_circuit(Time now, Duration least);

  HealthSettings settings_;
  State state_ = State::kUnknown;
  double limit_, threshold_;
  int in_flight_ = 0;
  int failures_ = 0;       // in a row
  int breaks_ = 0;         // without a whole wave of answers between
  int answers_since_ = 0;  // the last break
  int refusals_ = 0;       // in a row
  bool probing_ = false;
  Time probe_at_{}, probed_at_{}, held_until_{}, halved_{};
  Time lost_at_{};  // of one that is told of
  Allowance requests_, tokens_;
  RateNews news_;
  Time news_at_{};
  double seconds_ = 0, first_byte_ = 0;
};

}  // namespace tandem::gateway
