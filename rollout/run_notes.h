// Statistics of a run for people: outcomes of attempts, reasons without a reward, alarms.
//
// Failures are kept in RUN/failures.json, over restarts; all else counts from the coordinator's start. The books do not
// depend on any of it.
//
// Thread safety: none.
#pragma once

#include <optional>

#include "base/clock.h"
#include "base/file.h"
#include "rollout/books/alarms.h"
#include "rollout/books/failures.h"
#include "rollout/books/ledger.h"

namespace tandem::rollout {

class RunNotes {
 public:
  // `most_unscored`: attempts in a row that may fail again (Failures::failed_again); 0: any number.
  // `alarms_off` are not raised (kAlarmNames).
  RunNotes(const fs::path& run_dir, uint64_t most_unscored, std::vector<std::string> alarms_off = {});

  // The number of episodes that the books dropped because they could not be scored.
  static uint64_t given_up(const Books& books);

  // Notes a commit that took effect. `ledger` is after it, `given_up` from before it.
  void committed(const Commit& commit, const Ledger& ledger, uint64_t given_up);
  void compared(const Compared& compared, const Ledger& ledger, uint64_t given_up);

  // Adds outcomes, learned_reward, attempts_without_reward and alarms to a line of metrics.jsonl, and begins to count
  // for the next one.
  void add_to(Json& line, uint64_t step);

  // Why the run must end; empty while it may go on.
  const std::optional<std::string>& verdict() const { return verdict_; }
  Json failures() const { return failures_.report(); }
  // RUN/failures.json, at most once a second unless it is the last time. A disk that is full costs the run nothing
  // else.
  void write(Time now, bool last);

 private:
  void failed(const std::string& reason, uint64_t episode, uint64_t again);

  const fs::path path_;
  const uint64_t most_unscored_;
  Failures failures_;
  uint64_t written_ = 0;  // their count when the file was
  Time next_write_{};
  std::optional<std::string> verdict_;
  bool verdict_written_ = false;
  std::map<std::string, uint64_t> outcomes_;  // of training attempts since the last step
  std::vector<double> learned_;               // rewards of these
  Alarms alarms_;
};

}  // namespace tandem::rollout
