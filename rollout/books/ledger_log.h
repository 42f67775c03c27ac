// RUN/ledger/events.log: the events of a run's books, and the books that they make.
//
// The first event says what the run is to do, so the log alone is enough to read it. Logs of format 1 do not say it:
// their plan is that of the run's config, and their runs train what is older than max_lag.
//
// Thread safety: none; one process appends, others may read meanwhile.
#pragma once

#include <functional>
#include <future>
#include <optional>

#include "base/record_log.h"
#include "rollout/books/ledger.h"

namespace tandem::rollout {

fs::path ledger_log_path(const fs::path& run_dir);

// Returns the plan of a log of format 1. Not called for newer formats.
using PlanOfConfig = std::function<Result<RunPlan>()>;

// The books under History::kOpen, from the snapshot on where there is one; those of a run without events where there is
// no log. Works while the run is on. kInvalid where the log is of a newer format, kCorrupt where it is damaged.
Result<Ledger> read_books(const fs::path& run_dir, const PlanOfConfig& plan_of_config);

// The same books, after `visit` has seen every episode as they have it, in order of admission. One pass over the log,
// after the snapshot or another pass has said how each episode ended. Memory: the episodes under way, those
// admitted after the oldest of them, and twice the books under kOpen. An error of `visit` ends the reading.
using VisitEpisode = std::function<Status(const EpisodeRecord&)>;
Result<Ledger> read_episodes(const fs::path& run_dir, const PlanOfConfig& plan_of_config, const VisitEpisode& visit);
Result<Ledger> read_episodes(const fs::path& run_dir, RunPlan plan_of_config, const VisitEpisode& visit);

// The plan of a run, and its config by path ({"run.steps": 4, ..}), which the log keeps for the record.
struct RunTerms {
  RunPlan plan;
  Json config = Json::object();
};

// Records in the log what changes from now on, before the coordinator is started: the plan where the log has none, more
// steps where `wanted` has more, config values that differ. `recorded` are the terms as the run was left; they matter
// for a log of format 1. Durable when it returns; the same call again changes nothing. The errors are those of
// read_books and of writing.
Status record_terms(const fs::path& run_dir, const RunTerms& recorded, const RunTerms& wanted);

// The values of the config, by path, by the first step that was trained with them (where a step was trained twice, the
// later time). Empty where no step was trained, and of a log of format 1. One pass over the log.
Result<std::map<uint64_t, Json>> read_configs(const fs::path& run_dir);

// Records in the log that the run continues in that epoch; durable when it returns.
Status record_take_over(const fs::path& run_dir, uint64_t epoch, const std::string& at);

// The log and the books, owned by the coordinator.
//
// Beside the log lies RUN/ledger/snapshot, what the books were at some byte of it: opening replays from there. It is
// written now and then by a thread of its own; one that is missing, damaged, of another format or of another log costs
// time and nothing else.
class LedgerLog {
 public:
  // Events between two snapshots: half a second of replay.
  static constexpr uint64_t kSnapshotEvents = 100'000;

  // Goes on with the log of a run, with a snapshot every so many events. kCorrupt where the log does not say what the
  // run is to do.
  static Result<LedgerLog> open(const fs::path& run_dir, uint64_t snapshot_events = kSnapshotEvents);

  const Ledger& ledger() const { return ledger_; }

  // Appends the event, then lets it take effect. What follows from it may be acted on once sync() has returned.
  Result<std::vector<Action>> apply(const Event& event);

  // Makes every event applied so far durable, with one fsync.
  Status sync();

  // Size of the log with all events applied so far.
  uint64_t bytes() const { return log_.size(); }

  // Saves a snapshot if enough events have come since the last one. The books are copied at once and written in the
  // background; errors are logged.
  Status save_snapshot_if_due();

 private:
  LedgerLog(fs::path run_dir, RecordLog log, Ledger ledger)
      : run_dir_(std::move(run_dir)), log_(std::move(log)), ledger_(std::move(ledger)) {}

  fs::path run_dir_;
  uint64_t snapshot_events_ = kSnapshotEvents;
  RecordLog log_;
  Ledger ledger_;
  bool unsynced_ = false;
  uint64_t events_ = 0,
           snapshot_at_ = 0;     // replayed and applied; of these, when the last snapshot was made
  uint64_t last_record_ = 0;     // where the last record begins
  std::future<Status> writing_;  // waits for its thread where it goes
};

}  // namespace tandem::rollout
