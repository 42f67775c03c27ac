// Which sample of an evaluation runs next, what is tried again, and when it is over.
//
// Pure: no clock, socket, thread or sandbox inside; `now` comes with the event. The shell (evaluation.h) carries out
// the actions. Samples are numbers below `samples`, begun in that order.
//
// A sample ends with a verdict, or for a reason that is not the model's: such an infra_error is tried again after a
// wait, a timeout is not. Where nothing but failures comes, or somebody says that the model cannot be had any more, the
// rest is given up, each with the reason. An interrupted schedule gives nothing up: what was not ended is left for the
// next time.
//
// Thread safety: none; one owner.
// Invariants: at most `concurrency` samples run; each sample is kept, given up or left exactly once; ScheduleOver is
// the last action, and comes when nothing runs.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "rollout/books/outcome.h"

namespace tandem::eval {

struct ScheduleSettings {
  std::vector<size_t> samples;  // that are to be run, in this order
  size_t concurrency = 8;
  int attempts = 3;  // of a sample
  Duration first_wait = std::chrono::seconds(2);
  Duration longest_wait = std::chrono::seconds(30);
  size_t failures_in_a_row = 24;  // infra_errors with nothing else between them, after which the rest is given up
  std::optional<Duration> total_time;
  double total_tokens = 0;  // 0: any number
};

enum class ScheduleEnd : uint8_t { kDone, kInterrupted, kGaveUp, kOutOfBudget };

struct ScheduleBegins {};
struct SampleEnded {
  size_t sample = 0;
  rollout::Outcome outcome = rollout::Outcome::kInfraError;
  std::string why;
  uint64_t tokens = 0;
};
struct ModelGone {
  std::string why;
};
struct ScheduleInterrupted {};
struct ScheduleTime {};  // deadline() may have come
using ScheduleEvent = std::variant<ScheduleBegins, SampleEnded, ModelGone, ScheduleInterrupted, ScheduleTime>;

struct StartSample {
  size_t sample = 0;
  int attempt = 1;
};
struct StopSample {  // it runs, and is to end soon: SampleEnded follows all the same
  size_t sample = 0;
};
struct KeepSample {  // the result that ended last is the sample's
  size_t sample = 0;
};
struct GiveUpSample {  // it has no verdict, for this reason
  size_t sample = 0;
  rollout::Outcome outcome = rollout::Outcome::kInfraError;
  std::string why;
};
struct ScheduleOver {
  ScheduleEnd end = ScheduleEnd::kDone;
  std::string why;  // of kGaveUp and kOutOfBudget
};
using ScheduleAction = std::variant<StartSample, StopSample, KeepSample, GiveUpSample, ScheduleOver>;

class Schedule {
 public:
  explicit Schedule(ScheduleSettings settings);

  std::vector<ScheduleAction> step(const ScheduleEvent& event, Time now);
  // When ScheduleTime is to be said; nothing where only samples are waited for.
  std::optional<Time> deadline() const;
  size_t running() const { return running_.size(); }

 private:
  using Actions = std::vector<ScheduleAction>;
  void ended(const SampleEnded& event, Time now, Actions& actions);
  void stop(ScheduleEnd end, std::string why, Actions& actions);
  void start_more(Time now, Actions& actions);
  rollout::Outcome outcome_of_rest() const;

  ScheduleSettings settings_;
  std::deque<size_t> waiting_;         // not begun
  std::multimap<Time, size_t> again_;  // to be tried again, when
  std::map<size_t, int> attempts_;     // that were begun
  std::set<size_t> running_;
  size_t failures_ = 0;  // since anything else
  double tokens_ = 0;
  std::optional<Time> ends_at_;
  std::optional<ScheduleOver> stopping_;
  bool over_ = false;
};

}  // namespace tandem::eval
