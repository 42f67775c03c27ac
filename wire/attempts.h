// Retry policy of a request to one of several servers: back-off, fail-over, a rate limit, and when to give up.
//
// Pure: no clock, socket, thread or random number inside; `now` comes with the event, the jitter is a function of the
// seed. One request at a time: it is wanted, then each attempt fails or succeeds.
//
// Each server is tried `tries` times with exponential back-off, then the next, until all have failed. The server that
// answered last is tried first next time. A pause that a server asks for is kept; a server that asks for a longer one
// than the limit is given up.
//
// Thread safety: none; one owner.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <variant>

#include "base/clock.h"

namespace tandem::wire {

struct AttemptSettings {
  size_t servers = 1;
  int tries = 4;  // of each server
  Duration first_wait = std::chrono::seconds(1);
  Duration longest_wait = std::chrono::seconds(30);
  Duration longest_retry_after = std::chrono::seconds(60);
  int per_minute = 0;  // attempts in any 60 s, of all servers together; 0: any number
  uint64_t seed = 0;   // of the jitter
};

struct RequestWanted {};
struct AttemptAnswered {};
struct AttemptFailed {
  bool passing = true;                                 // false: it would fail in the same way again, everywhere
  std::optional<Duration> retry_after = std::nullopt;  // what the server asked for
};
using AttemptEvent = std::variant<RequestWanted, AttemptAnswered, AttemptFailed>;

struct SendAt {
  size_t server = 0;
  Time at{};       // not before now
  int number = 1;  // of the attempt, over all servers
  friend bool operator==(const SendAt&, const SendAt&) = default;
};
struct GiveUp {
  friend bool operator==(const GiveUp&, const GiveUp&) = default;
};
struct AllWell {
  friend bool operator==(const AllWell&, const AllWell&) = default;
};
using AttemptAction = std::variant<SendAt, GiveUp, AllWell>;

class Attempts {
 public:
  explicit Attempts(const AttemptSettings& settings) : settings_(settings) {}
  AttemptAction step(const AttemptEvent& event, Time now);

 private:
  AttemptAction begin(Time now);
  AttemptAction failed(const AttemptFailed& failure, Time now);
  AttemptAction send(Time at);

  AttemptSettings settings_;
  size_t server_ = 0;         // that is asked, or will be first
  size_t servers_tried_ = 0;  // before it, for this request
  int tries_ = 0;             // of it, for this request
  int number_ = 0;
  uint64_t draws_ = 0;
  std::deque<Time> sent_;  // the last `per_minute` attempts
};

}  // namespace tandem::wire
