// Answers operators (`tandem envs`) over the socket that rollouts use.
//
// Episodes never wait for an operator. Questions are answered on threads of their own, of which programs that look into
// sandboxes leave one free; what may wait is bounded, and so is how many questions come in a second. Only a kill is
// carried out on the thread of the loop: it waits for nothing.
//
// Thread safety: as WorkQueue's; its owner is the server's loop.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>

#include "base/work_queue.h"
#include "envs/fleet/messages.h"
#include "envs/fleet/watched_backend.h"
#include "envs/sandbox/read_cache.h"

namespace tandem::envs {

// How many questions are taken: so many at once, then so many a second. Pure.
class QuestionBudget {
 public:
  static constexpr double kAtOnce = 64, kPerSecond = 32;
  // Whether one more is taken.
  bool take(Time now);

 private:
  double left_ = kAtOnce;
  Time last_{};
  bool begun_ = false;
};

// Figures that only the server's loop knows.
struct LoopFigures {
  uint64_t episodes = 0, waiting = 0, queue = 0, failed = 0;
  ReadCache::Counters reads = {};
  std::map<uint64_t, double> lease_seconds;  // that are left
};

class OperatorRequests {
 public:
  // An answer to a question; called on the owner's thread, in ask() or run_completions().
  using Answer = std::function<void(const Result<FleetAnswer>&)>;

  OperatorRequests(WatchedBackend& fleet, const Clock& clock);
  ~OperatorRequests();  // ends the programs that look in, and waits for them

  void ask(Result<FleetQuery> query, const std::function<LoopFigures()>& loop, Answer answer);
  void run_completions() { queue_.run_completions(); }

 private:
  static constexpr int kThreads = 3, kMostExecs = kThreads - 1;
  static constexpr size_t kMostWaiting = 32;

  void later(std::function<Result<FleetAnswer>()> work, Answer answer, bool is_exec);

  WatchedBackend& fleet_;
  const Clock& clock_;
  QuestionBudget budget_;
  int execs_ = 0;
  std::stop_source stop_;
  WorkQueue queue_;  // its threads use what stands above
};

}  // namespace tandem::envs
