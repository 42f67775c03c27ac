// How much a server that has just come up takes on: little, and more as it keeps answering fast.
//
// A server without pages of prompts, and with memory that was never touched, is slow at first; one of few that came up
// is asked for all that the fleet is asked for. So it begins with few requests at once and a share of the users, and
// doubles both at each step while the time to the first token holds. Which users get through is a matter of their
// name's hash alone: those of a small share are among those of each larger one, on every server and after every
// restart. It ends when all slots are used, or after kLongest at the latest; the server's queue says the rest then.
//
// Pure state machine; thread safety: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "wire/http_server.h"

namespace tandem::serve {

struct SlowStartSettings {
  int first = 0;                            // requests at once at the start; 0: there is no slow start
  int whole = 1;                            // from so many on it is over
  Duration step = std::chrono::seconds(2);  // between two doublings, at least
};

class SlowStart {
 public:
  static constexpr Duration kLongest = std::chrono::minutes(5);

  explicit SlowStart(const SlowStartSettings& settings);

  // The server can answer from now on.
  void begin(Time now);
  // Nothing: a request of this user may come while so many are under way. Else what to tell it. Those that are refused
  // are counted.
  struct Refusal {
    Duration retry_after{};
    std::string says;
  };
  std::optional<Refusal> ask(std::string_view user, size_t under_way, Time now);
  // Several times a second: how many answers have begun since the start, how long all of them took to, and how many
  // requests are under way.
  void tick(uint64_t begun, double begun_seconds, size_t under_way, Time now);

  bool over() const { return over_; }
  double share() const;  // of the users, in (0, 1]
  int limit() const { return limit_; }
  uint64_t refused() const { return refused_; }

  // In [0, 1): where a user stands among all.
  static double place_of(std::string_view user);

 private:
  SlowStartSettings settings_;
  int limit_;
  bool over_;
  Time began_{}, stepped_{};
  uint64_t begun_ = 0;
  double begun_seconds_ = 0;
  std::optional<double> usual_;  // seconds to the first token: the least of a step until now
  uint64_t refused_ = 0;
};

// 503 with Retry-After.
wire::HttpResponse refusal_of(const SlowStart::Refusal& refusal);
// For the page of metrics.
std::string prometheus_text(const SlowStart& start);

}  // namespace tandem::serve
