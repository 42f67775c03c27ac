#include "rollout/books/ledger_log.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cstring>

#include "base/digest.h"

namespace tandem::rollout {

namespace {

// How records begin; see to_json(Event).
constexpr std::string_view kPlanRecord = R"({"event":"plan_set",)";
constexpr std::string_view kConfigRecord = R"({"event":"config_set",)";
constexpr std::string_view kTrainedRecord = R"({"event":"trained",)";

Result<Event> event_of(std::string_view record) { return event_from_json(TRY(parse_json(record))); }

struct FoundPlan {
  RunPlan plan;
  bool is_first = false;  // else of a log of format 1 whose run has gone on
};

// The plan that the log says; it is the first record but in a log that began in format 1.
Result<std::optional<FoundPlan>> plan_in(const fs::path& path) {
  std::optional<FoundPlan> found;
  uint64_t records = 0;
  const auto content = read_log(path, [&](std::string_view record, uint64_t) -> Status {
    const bool first = records++ == 0;
    if (!record.starts_with(kPlanRecord)) return {};
    const Event event = TRY(event_of(record));
    found = {std::get<PlanSet>(event).plan, first};
    return Status::cancelled("found");
  });
  if (!content && !found) return fail(Status(content.error()).at(path.string()));
  return found;
}

// What the log is replayed into: a ledger that its first event gives the plan, or that has it beforehand.
Result<Ledger> empty_ledger(const fs::path& path, const PlanOfConfig& plan_of_config) {
  const auto said = fs::exists(path) ? TRY(plan_in(path)) : std::nullopt;
  if (said) return said->is_first ? Ledger(History::kOpen) : Ledger(said->plan, History::kOpen);
  RunPlan plan = TRY(plan_of_config());
  plan.on_lag = OnLag::kUnbound;
  return Ledger(std::move(plan), History::kOpen);
}

struct Replayed {
  uint64_t events = 0, last_record = 0;  // where the last of them begins
  uint64_t log_bytes = 0;                // up to the end of it
};

// Lets the events from byte `from` on take effect.
Result<Replayed> replay(const fs::path& path, Ledger& ledger, uint64_t from = 0) {
  Replayed replayed;
  const auto visit = [&](std::string_view record, uint64_t offset) -> Status {
    ++replayed.events;
    replayed.last_record = offset;
    (void)ledger.step(TRY(event_of(record)));
    return {};
  };
  replayed.log_bytes = TRY(read_log(path, visit, Damage::kRefuse, from)).good_bytes;
  return replayed;
}

Result<RecordLog> open_log(const fs::path& path, uint64_t from = 0) {
  TRY(make_directories(path.parent_path()));
  uint64_t cut = 0;
  auto log = TRY(RecordLog::open(path, &cut, Damage::kRefuse, from));
  if (cut > 0) spdlog::warn("{}: the last {} bytes were torn off by a crash and cut", path.string(), cut);
  return log;
}

// ---- Snapshots: this, then what Ledger::snapshot() gives ----

struct SnapshotHead {
  uint64_t digest_low = 0, digest_high = 0;  // of all that follows these two
  uint64_t log_bytes = 0;                    // of the log, that the books are of
  uint64_t last_record = 0;                  // where the last record of these begins
  uint64_t last_digest = 0;                  // of its content
};
constexpr size_t kDigestBytes = 2 * sizeof(uint64_t);

fs::path snapshot_path(const fs::path& run_dir) { return run_dir / "ledger" / "snapshot"; }

struct Restored {
  Ledger ledger;
  uint64_t log_bytes = 0, last_record = 0;
};

Result<Restored> restore_snapshot(const fs::path& run_dir) {
  const auto file = TRY(MappedFile::open(snapshot_path(run_dir)));
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  SnapshotHead head;
  if (bytes.size() < sizeof head) return fail(Status::corrupt("is cut short"));
  std::memcpy(&head, bytes.data(), sizeof head);
  if (digest_of(bytes.substr(kDigestBytes)) != Digest{head.digest_low, head.digest_high})
    return fail(Status::corrupt("is damaged"));
  const auto last = read_record(ledger_log_path(run_dir), head.last_record);
  if (!last || digest_of(*last).low != head.last_digest) return fail(Status::corrupt("is of another log"));
  return Restored{TRY(Ledger::restore(bytes.substr(sizeof head))), head.log_bytes, head.last_record};
}

struct FromSnapshot {
  Ledger ledger;
  uint64_t from = 0;  // bytes of the log that the snapshot held
  Replayed tail;
};

// The books by the snapshot, where there is one that can be used, and what the log has beyond it.
Result<FromSnapshot> replay_from_snapshot(const fs::path& run_dir, const PlanOfConfig& plan_of_config) {
  const fs::path path = ledger_log_path(run_dir), snapshot = snapshot_path(run_dir);
  if (fs::exists(snapshot)) {
    if (auto restored = restore_snapshot(run_dir)) {
      FromSnapshot read{std::move(restored->ledger), restored->log_bytes, {}};
      read.tail = TRY(replay(path, read.ledger, read.from));
      read.tail.last_record = std::max(read.tail.last_record, restored->last_record);
      return read;
    } else {
      spdlog::warn("{} {}; the whole log is replayed", snapshot.string(), restored.error().message());
    }
  }
  FromSnapshot read{TRY(empty_ledger(path, plan_of_config)), 0, {}};
  read.tail = TRY(replay(path, read.ledger));
  return read;
}

}  // namespace

fs::path ledger_log_path(const fs::path& run_dir) { return run_dir / "ledger" / "events.log"; }

Result<Ledger> read_books(const fs::path& run_dir, const PlanOfConfig& plan_of_config) {
  const fs::path path = ledger_log_path(run_dir);
  if (!fs::exists(path)) return empty_ledger(path, plan_of_config);
  return std::move(TRY(replay_from_snapshot(run_dir, plan_of_config)).ledger);
}

namespace {

// Hands out settled records in order of admission; those that come before their turn wait.
class InOrder {
 public:
  InOrder(const Ledger& books, const VisitEpisode& visit) : books_(books), visit_(visit) {}

  void add(EpisodeRecord record) { waiting_.emplace(record.episode, std::move(record)); }
  Status hand_out() {
    for (auto first = waiting_.begin(); first != waiting_.end() && first->first == next_; ++next_) {
      TRY(visit_(books_.as_of_now(std::move(first->second))));
      first = waiting_.erase(first);
    }
    return {};
  }

 private:
  const Ledger& books_;
  const VisitEpisode& visit_;
  std::map<uint64_t, EpisodeRecord> waiting_;
  uint64_t next_ = 0;
};

}  // namespace

Result<Ledger> read_episodes(const fs::path& run_dir, const PlanOfConfig& plan_of_config, const VisitEpisode& visit) {
  const fs::path path = ledger_log_path(run_dir);
  if (!fs::exists(path)) return empty_ledger(path, plan_of_config);
  auto read = TRY(replay_from_snapshot(run_dir, plan_of_config));
  Ledger ledger = TRY(empty_ledger(path, plan_of_config));
  InOrder in_order(read.ledger, visit);
  const Ledger::OnSettled on_settled = [&](EpisodeRecord&& record) { in_order.add(std::move(record)); };
  bool at_end = false;  // a run that is on may have written more since
  const auto replayed = read_log(path, [&](std::string_view record, uint64_t offset) -> Status {
    at_end = offset >= read.tail.log_bytes;
    if (at_end) return Status::cancelled("as far as the books go");
    (void)ledger.step(TRY(event_of(record)), on_settled);
    return in_order.hand_out();
  });
  if (!replayed && !at_end) return fail(replayed.error());
  for (const EpisodeRecord& episode : ledger.episodes()) in_order.add(episode);
  TRY(in_order.hand_out());
  return std::move(read.ledger);
}

Result<Ledger> read_episodes(const fs::path& run_dir, RunPlan plan_of_config, const VisitEpisode& visit) {
  return read_episodes(
      run_dir, [&]() -> Result<RunPlan> { return plan_of_config; }, visit);
}

Status record_terms(const fs::path& run_dir, const RunTerms& recorded, const RunTerms& wanted) {
  const fs::path path = ledger_log_path(run_dir);
  {
    auto log = TRY(open_log(path));
    uint64_t records = 0;
    const auto first = [&](std::string_view, uint64_t) { return ++records, Status::cancelled("seen"); };
    if (const auto content = read_log(path, first); !content && records == 0) return content.error();
    if (records == 0) {
      TRY(log.append(dump_json(to_json(PlanSet{wanted.plan}))));
      TRY(log.append(dump_json(to_json(ConfigSet{wanted.config}))));
    } else if (!TRY(plan_in(path))) {
      RunPlan plan = recorded.plan;
      plan.on_lag = OnLag::kUnbound;
      TRY(log.append(dump_json(to_json(PlanSet{plan}))));
      TRY(log.append(dump_json(to_json(ConfigSet{recorded.config}))));
    }
    TRY(log.sync());
  }
  auto log = TRY(LedgerLog::open(run_dir));
  if (wanted.plan.steps > log.ledger().plan().steps) TRY(log.apply(Extended{wanted.plan.steps}));
  Json changed = Json::object();
  for (const auto& [key, value] : wanted.config.items()) {
    const auto was = log.ledger().config().find(key);
    if (was == log.ledger().config().end() || *was != value) changed[key] = value;
  }
  if (!changed.empty()) TRY(log.apply(ConfigSet{changed}));
  return log.sync();
}

Result<std::map<uint64_t, Json>> read_configs(const fs::path& run_dir) {
  std::map<uint64_t, Json> configs;
  Json values = Json::object();
  bool are_new = false;
  const auto visit = [&](std::string_view record, uint64_t) -> Status {
    if (!record.starts_with(kConfigRecord) && !record.starts_with(kTrainedRecord)) return {};
    const Event event = TRY(event_of(record));
    if (const auto* set = std::get_if<ConfigSet>(&event)) {
      values.update(set->values);
      are_new = true;
    } else if (const auto* trained = std::get_if<Trained>(&event); trained != nullptr && are_new) {
      configs.erase(configs.lower_bound(trained->step), configs.end());
      configs[trained->step] = values;
      are_new = false;
    }
    return {};
  };
  const fs::path path = ledger_log_path(run_dir);
  if (fs::exists(path)) TRY(read_log(path, visit));
  return configs;
}

Status record_take_over(const fs::path& run_dir, uint64_t epoch, const std::string& at) {
  auto log = TRY(LedgerLog::open(run_dir));
  if (log.ledger().epoch() >= epoch) return {};
  TRY(log.apply(TakenOver{epoch, at}));
  return log.sync();
}

Result<LedgerLog> LedgerLog::open(const fs::path& run_dir, uint64_t snapshot_events) {
  const fs::path path = ledger_log_path(run_dir);
  const auto no_plan = [&]() -> Result<RunPlan> {
    return fail(Status::corrupt("does not say what the run is to do")
                    .at(path.string())
                    .hint("`tandem run CONFIG --resume --run-dir RUN` writes it before it starts the roles"));
  };
  if (!fs::exists(path)) return fail(no_plan().error());
  auto read = TRY(replay_from_snapshot(run_dir, no_plan));
  auto log = TRY(open_log(path, read.from));
  LedgerLog opened(run_dir, std::move(log), std::move(read.ledger));
  opened.last_record_ = read.tail.last_record;
  opened.events_ = read.tail.events;
  opened.snapshot_events_ = snapshot_events;
  return opened;
}

Result<std::vector<Action>> LedgerLog::apply(const Event& event) {
  last_record_ = TRY(log_.append(dump_json(to_json(event))));
  unsynced_ = true;
  ++events_;
  return ledger_.step(event);
}

Status LedgerLog::sync() {
  if (!std::exchange(unsynced_, false)) return {};
  return log_.sync();
}

Status LedgerLog::save_snapshot_if_due() {
  if (events_ - snapshot_at_ < snapshot_events_) return {};
  if (writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return {};
  TRY(sync());  // a snapshot must not know more than the log
  snapshot_at_ = events_;
  SnapshotHead head{.log_bytes = log_.size(), .last_record = last_record_};
  head.last_digest = digest_of(TRY(read_record(ledger_log_path(run_dir_), last_record_))).low;
  std::string bytes(sizeof head, '\0');
  bytes += ledger_.snapshot();
  writing_ = std::async(std::launch::async, [path = snapshot_path(run_dir_), head, bytes = std::move(bytes)]() mutable {
    std::memcpy(bytes.data(), &head, sizeof head);
    const Digest digest = digest_of(std::string_view(bytes).substr(kDigestBytes));
    head.digest_low = digest.low;
    head.digest_high = digest.high;
    std::memcpy(bytes.data(), &head, kDigestBytes);
    Status status = write_file(path, bytes);
    if (!status.ok()) spdlog::warn("no snapshot of the books: {}", status.to_string());
    return status;
  });
  return {};
}

}  // namespace tandem::rollout
