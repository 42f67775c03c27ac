// For how long runs have said nothing to a host, and when its copy of a run is reason to go on with it.
//
// A standby goes on by itself (run.standby_takes_over=majority) when the run's side has been silent for
// run.standby_patience here and at more than half of the run's hosts, this one counted. No two sides train: the old one
// acknowledges nothing that this host does not have (run.standby_lost=wait), and from the take-over on it takes nothing
// more from it. The others are asked so that a standby that is cut off alone leaves the run where it is.
//
// Pure machines: no sockets, files or clocks. Time in which nobody called tick is nobody's silence.
//
// Thread safety: none.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "hosts/protocol.h"

namespace tandem::hosts {

// When each run was heard last.
class RunsHeard {
 public:
  static constexpr size_t kMostRuns = 1000;  // those that were heard longest ago go

  explicit RunsHeard(Time begun) : begun_(begun), last_tick_(begun) {}
  void tick(Time now);
  // It has opened a session with the host.
  void opened(uint64_t run, Time now);
  // A late word of a run that has given the host back opens nothing.
  void heard(uint64_t run, Time now);
  // It has given the host back.
  void over(uint64_t run, Time now);
  Silence silence(uint64_t run, Time now) const;

 private:
  struct Heard {
    Time at{};
    bool is_over = false;
  };
  std::map<uint64_t, Heard> runs_;
  Time begun_, last_tick_;
};

// Whether the standby of one run goes on with it.
class MajorityWatch {
 public:
  enum class State : uint8_t {
    kListening,  // the run is heard, or has not been silent for long enough
    kAsking,     // it is silent here; the other hosts are asked
    kTaking,     // more than half agree; the owner goes on with it
    kDone,       // it was taken over, by this machine or by an operator, or cannot be
  };
  struct Terms {
    std::string run;                  // its name, for people
    std::vector<std::string> others;  // hosts of the run, without this one
    double patience = 30;             // seconds
  };
  explicit MajorityWatch(Terms terms) : terms_(std::move(terms)) {}

  struct Turn {
    std::vector<std::string> asks;  // hosts to be asked now
    bool takes_over = false;        // once: answered by failed or done
    std::vector<std::string> news;  // for people
  };
  // `here`: what this host has heard.
  // Where one of the others says that the run has given it back nothing is taken over: the run may have ended well.
  Turn tick(const Silence& here, Time now);
  void on(const std::string& host, const Silence& there, Time now);
  // Nothing was taken over; another attempt comes later, kMostAttempts in all.
  static constexpr int kMostAttempts = 5;
  void failed(Time now);
  void done() { state_ = State::kDone; }

  State state() const { return state_; }
  size_t needed() const { return (terms_.others.size() + 1) / 2 + 1; }

 private:
  size_t agreeing(Time now) const;
  std::string given_back(Time now) const;  // a host that says so; empty: none does
  struct Answer {
    Silence silence;
    Time at{};
  };
  const Terms terms_;
  State state_ = State::kListening;
  std::map<std::string, Answer> answers_;
  Time next_ask_{}, not_before_{};
  size_t told_ = 0;  // how many agreed when that was said last
  bool told_of_end_ = false;
  int attempts_ = 0;
};

}  // namespace tandem::hosts
