// Which upstream gets which request, and when.
//
// Requests of a model wait in one queue (serve/admission.h), whose slots are what its upstreams take on together. The
// one that begins goes where the beginning of its prompt was computed last, unless that upstream has much more to do
// than others, and else where an answer is to be expected first. What fails before any of its answer was passed on is
// sent to another upstream; such repeats are at most a fifth of all requests, so that an outage is not made worse by
// them. An upstream that serves several models counts with all of its slots for each; what is more than its limit
// waits. Repeats alone may go beyond it.
//
// An upstream may also be a process of the same server, of which its owner tells (ProcessChange). What it was lost
// with, before any of the answer was passed on, waits until it is back and is sent once more; one that has failed for
// good refuses at once, with its cause.
//
// Pure state machine; thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "gateway/health.h"
#include "gateway/prefix_map.h"
#include "serve/admission.h"

namespace tandem::gateway {

using RequestNumber = uint64_t;

struct RouterSettings {
  std::vector<HealthSettings> upstreams;
  int queue = 1024;                                  // requests of a model that wait, at most
  Duration longest_wait = std::chrono::seconds(30);  // for an upstream, where none can be asked
  int most_attempts = 3;                             // of one request
};

struct Arrived {
  RequestNumber request = 0;
  std::string model, key;
  serve::Priority priority = serve::Priority::kInteractive;
  std::vector<uint64_t> prefix;
  double tokens = 0;           // about how many it will take
  std::optional<size_t> only;  // the upstream that has what it goes on from
};
// The head of an answer that is passed on.
struct Answering {
  RequestNumber request = 0;
  RateNews rate = {};
};
// The end of that.
struct Answered {
  RequestNumber request = 0;
};
struct Failed {
  RequestNumber request = 0;
  Failure failure = Failure::kFaulty;
  std::optional<Duration> retry_after = {};
  RateNews rate = {};
  bool begun = false;  // some of its answer was passed on: nothing is repeated
};
// Its client went away, or an admin ended it.
struct Gone {
  RequestNumber request = 0;
};
struct Probed {
  size_t upstream = 0;
  std::optional<std::vector<std::string>> models = {};  // names that clients ask for; nothing: no answer
};
// News of an upstream with HealthSettings::told, from its owner.
struct ProcessChange {
  enum class State : uint8_t { kThere, kAway, kFailed };
  size_t upstream = 0;
  State state = State::kAway;
  std::vector<std::string> models = {};  // names that clients ask for, whether it is there or not
  Time as_of{};                          // kThere: when it was asked that
  Time expected{};                       // kAway: when it is back, about
  std::string why = {};                  // kAway, kFailed: for clients
};
struct Tick {};  // several times a second
using RouterEvent = std::variant<Arrived, Answering, Answered, Failed, Gone, Probed, ProcessChange, Tick>;

struct Send {
  RequestNumber request = 0;
  size_t upstream = 0;
  friend bool operator==(const Send&, const Send&) = default;
};
struct Refuse {
  RequestNumber request = 0;
  int status = 503;
  std::optional<Duration> retry_after;
  std::string why;
  friend bool operator==(const Refuse&, const Refuse&) = default;
};
struct Probe {
  size_t upstream = 0;
  friend bool operator==(const Probe&, const Probe&) = default;
};
// For the log.
struct Turned {
  size_t upstream = 0;
  bool open = false;
  std::optional<Failure> failure;
  friend bool operator==(const Turned&, const Turned&) = default;
};
using RouterAction = std::variant<Send, Refuse, Probe, Turned>;

struct UpstreamCounters {
  uint64_t sent = 0, answered = 0, repeated = 0;  // repeated: of `sent`, after a failure elsewhere
  std::map<std::string_view, uint64_t> failures;  // by kind
  uint64_t prefix_asked = 0, prefix_found = 0;    // hashes of what it was sent; those that it had
};

class Router {
 public:
  explicit Router(const RouterSettings& settings);

  std::vector<RouterAction> step(const RouterEvent& event, Time now);

  const Health& health(size_t upstream) const { return upstreams_[upstream].health; }
  // Sorted.
  const std::vector<std::string>& models(size_t upstream) const { return upstreams_[upstream].models; }
  const UpstreamCounters& counters(size_t upstream) const { return upstreams_[upstream].counters; }
  std::vector<std::string> all_models() const;
  bool any_open(Time now) const;
  // Whether an upstream with `told` is available now.
  bool open(size_t upstream, Time now) const { return upstreams_[upstream].health.open(1, now); }
  // Whether each upstream has answered, or failed, once.
  bool all_tried() const;
  size_t requests() const { return requests_.size(); }
  size_t waiting() const;

 private:
  struct Upstream {
    Health health;
    std::vector<std::string> models = {};  // sorted, each once
    bool tried = false;
    bool told = false, failed = false;
    std::string why = {};  // as it was told
    UpstreamCounters counters = {};
  };
  struct Request {
    Arrived terms;
    Time arrived{}, sent_at{};
    Time waits_since{};  // for an upstream: its arrival, or the loss of one that is told of
    int losses = 0;      // with an upstream that is told of; after the second it waits for the cause alone
    std::optional<size_t> upstream = {};  // that has it now
    uint64_t tried = 0;                   // a bit for each upstream that failed it
    int attempts = 0;
    bool started = false;  // it has left the queue
    std::optional<Failure> last = {};
  };
  using Actions = std::vector<RouterAction>;

  void arrive(const Arrived& arrived, Time now, Actions& actions);
  void fail_one(const Failed& failed, Time now, Actions& actions);
  void take_probe_answer(const Probed& probed, Time now, Actions& actions);
  void take_changes(const ProcessChange& told, Time now, Actions& actions);
  void set_models(Upstream& upstream, std::vector<std::string> models);
  void refuse_hopeless(const ProcessChange& told, Time now, Actions& actions);
  bool waits_again(const Failed& failed, Request& request, Time now);
  void end(RequestNumber number, Time now, Actions& actions);
  void admit(const std::string& model, const serve::AdmissionEvent& event, Time now, Actions& actions);
  void count_slots(Time now, Actions& actions);
  void place_waiting(Time now, Actions& actions);
  bool place(RequestNumber number, Request& request, Time now, Actions& actions);
  std::optional<size_t> best_for(const Request& request, Time now, size_t& found) const;
  bool serves(const Upstream& upstream, const Arrived& terms, size_t index) const;
  Refuse told_refusal_of(RequestNumber number, const Request& request, const Upstream& upstream, Time now) const;
  Refuse refusal_of(RequestNumber number, const Request& request, Time now) const;
  void tick(Time now, Actions& actions);
  double usual(double (Health::*of)() const) const;

  RouterSettings settings_;
  std::vector<Upstream> upstreams_;
  std::map<std::string, serve::Admission> queues_;  // by model
  std::map<RequestNumber, Request> requests_;
  std::vector<RequestNumber> unplaced_;  // started, and no upstream could be asked
  PrefixMap prefixes_{size_t{1} << 18};
  std::vector<int> limits_;  // of the upstreams, as the queues were told them; empty: not yet
  double repeats_left_;
  Time forgot_{};
};

}  // namespace tandem::gateway
