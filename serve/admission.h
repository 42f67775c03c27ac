// Which request's answers are sampled next: priority classes by weight, keys within a class in turn, first come first
// served within a key.
//
// Where all slots are taken, the first class may begin beside others, which then give up theirs in the engine until it
// is through: as many as half of the slots, so that the others always go on.
//
// A class takes at most its share of the slots, so that a free one is left for those above it. No class starves: each
// gets its part of the starts by its weight. The queue is bounded: an offer counts what waits of its class and of those
// above, so a flood of one class refuses nothing of a better one. A class may have a longest wait: what would wait for
// longer, by how long answers have lately taken, is refused at once instead of being answered too late. One that is
// refused learns when it is worth another try.
//
// Pure state machine; thread safety: none.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "serve/priority.h"

namespace tandem::serve {

using AnswerId = uint64_t;  // of one answer that is sampled

struct AdmissionSettings {
  int slots = 16;
  int queue = 1024;  // answers of a class and of those above it that wait, at most
  std::array<Duration, kPriorities.size()> longest_wait = {};  // zero: any
};

// All answers of a request, which are taken on or refused together.
struct Offer {
  std::vector<AnswerId> answers;
  Priority priority = Priority::kInteractive;
  std::string key;
};
struct Ended {
  AnswerId answer = 0;  // sampled, waiting, or unknown
};
// Nothing is started until it is false again.
struct Hold {
  bool held = false;
};
// There are so many from now on; 0: nothing is started. Those that run go on.
struct Slots {
  int slots = 0;
};
using AdmissionEvent = std::variant<Offer, Ended, Hold, Slots>;

struct AdmissionActions {
  std::vector<AnswerId> start;
  std::optional<Duration> refused;  // the offer: when to try again
  bool too_late = false;            // it was, since it would wait for longer than its class may
};

class Admission {
 public:
  explicit Admission(const AdmissionSettings& settings) : settings_(settings) {}

  AdmissionActions step(const AdmissionEvent& event, Time now);

  int running() const { return static_cast<int>(running_.size()); }
  int waiting() const { return static_cast<int>(where_.size()); }

 private:
  struct Class {
    std::map<std::string, std::deque<AnswerId>> keys;  // that have answers
    std::deque<std::string> turns;                     // the same keys, the next one first
    double pass = 0;                                   // grows by 1 / weight at each start; the least is next
    int running = 0;
    int waiting = 0;
    Duration mean = {};  // from start to end, of the last answers; zero: none has ended
  };
  struct Place {
    Priority priority = Priority::kInteractive;
    std::string key;
  };

  Class& of(Priority priority) { return classes_[static_cast<size_t>(priority)]; }
  int share(Priority priority) const;
  bool may_start(Priority priority) const;
  void enqueue(AnswerId answer, const Place& place);
  void dequeue(AnswerId answer, const Place& place);
  void start_next(Time now, std::vector<AnswerId>& start);
  // What waits of this class and of those above it.
  int ahead_of(Priority priority) const;
  Duration until_room(Priority priority, Time now) const;
  // How long the last of `answers` more of this class would wait; zero where nothing is known.
  Duration predicted_wait(Priority priority, size_t answers) const;
  void take_time(Priority priority, Duration taken);

  AdmissionSettings settings_;
  bool held_ = false;
  std::array<Class, kPriorities.size()> classes_;
  struct Running {
    Priority priority = Priority::kInteractive;
    Time since = {};
  };
  std::map<AnswerId, Place> where_;      // those that wait
  std::map<AnswerId, Running> running_;  // those that are sampled
  double pass_ = 0;                      // of the last start
  std::deque<Time> starts_;              // the last ones
};

}  // namespace tandem::serve
