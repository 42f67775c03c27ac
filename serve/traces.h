// Where the time of slow requests went: the last ones, in memory, as Perfetto and chrome://tracing read them.
//
// Nothing of what was said is in it. Thread safety: none; the server's loop owns it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/json.h"

namespace tandem::serve {

struct TraceSettings {
  size_t most = 256;       // requests that are kept; 0: none
  double slower_than = 1;  // seconds; faster ones are not kept
};

struct TraceSpan {
  std::string name;  // "queue", "prefill", "decode"
  Time start{}, end{};
  int row = 0;  // spans of one row do not overlap; each answer of a request has its own
  Json facts = Json::object();
};

struct RequestTrace {
  std::string id, path;
  std::string parent;  // of the header traceparent, whole; empty: there was none
  Time start{}, end{};
  std::vector<TraceSpan> spans;
  Json facts = Json::object();
};

class Traces {
 public:
  Traces(const TraceSettings& settings, const Clock& clock)
      : settings_(settings), begin_(clock.now()), begin_unix_(clock.unix_seconds()) {}

  bool wanted(Duration took) const { return settings_.most > 0 && to_seconds(took) >= settings_.slower_than; }
  // One that is not wanted is let go.
  void add(RequestTrace trace);

  // The trace event format: {"traceEvents": [..]}; times are microseconds of Unix time. Of those that took longer than
  // so many seconds.
  Json events(double slower_than) const;
  size_t size() const { return kept_.size(); }

 private:
  double microseconds(Time at) const { return (begin_unix_ + to_seconds(at - begin_)) * 1e6; }

  const TraceSettings settings_;
  const Time begin_;
  const double begin_unix_;
  std::deque<RequestTrace> kept_;
};

// The trace id of a W3C traceparent, 32 hexadecimal digits; empty where it is none.
std::string trace_id_of(std::string_view traceparent);

}  // namespace tandem::serve
