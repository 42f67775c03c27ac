// RUN/ledger/events.log: the events of a run's books, and the books that they make.
//
// The first event says what the run is to do, so the log alone is enough to read it. Logs of format 1 do not say it:
// their plan is that of the run's config, and their runs train what is older than max_lag.
//
// Thread safety: none; one process appends, others may read meanwhile.
#pragma once

#include <functional>
#include <optional>

#include "base/record_log.h"
#include "rollout/books/ledger.h"

namespace tandem::rollout {

fs::path ledger_log_path(const fs::path& run_dir);

// Where a log of format 1 has its plan from; not asked for any other.
using PlanOfConfig = std::function<Result<RunPlan>()>;

// The books that the log describes, every episode in full; those of a run without events where there is no log. Works
// while the run is on. kInvalid where the log is of a newer format, kCorrupt where it is damaged.
Result<Ledger> read_ledger(const fs::path& run_dir, const PlanOfConfig& plan_of_config);
Result<Ledger> read_ledger(const fs::path& run_dir, RunPlan plan_of_config);

// What a run is to do, and its config by path ({"run.steps": 4, ..}), which the log keeps for the record.
struct RunTerms {
  RunPlan plan;
  Json config = Json::object();
};

// Says in the log what the run is to do from now on, before its coordinator is started: the plan where the log has
// none, more steps where `wanted` has more, values of the config that have changed. `recorded` are the terms as the run
// was left; they matter for a log of format 1. Durable when it returns; the same call again changes nothing.
// The errors are those of read_ledger and of writing.
Status record_terms(const fs::path& run_dir, const RunTerms& recorded, const RunTerms& wanted);

// The log and the books, kept together: what the coordinator owns.
class LedgerLog {
 public:
  // Goes on with the log of a run. kCorrupt where the log does not say what the run is to do.
  static Result<LedgerLog> open(const fs::path& run_dir);

  const Ledger& ledger() const { return ledger_; }

  // Appends the event, then lets it take effect. What follows from it may be acted on once sync() has returned.
  Result<std::vector<Action>> apply(const Event& event);

  // Every event applied so far survives the machine: one wait for the disk, however many they are.
  Status sync();

 private:
  LedgerLog(RecordLog log, Ledger ledger) : log_(std::move(log)), ledger_(std::move(ledger)) {}
  RecordLog log_;
  Ledger ledger_;
  bool unsynced_ = false;
};

}  // namespace tandem::rollout
