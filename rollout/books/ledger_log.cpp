#include "rollout/books/ledger_log.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace tandem::rollout {

namespace {

// How the record of a plan begins; see to_json(Event).
constexpr std::string_view kPlanRecord = R"({"event":"plan_set",)";

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

Status replay(const fs::path& path, Ledger& ledger) {
  TRY(read_log(path, [&](std::string_view record, uint64_t) -> Status {
    ledger.step(TRY(event_of(record)));
    return {};
  }));
  return {};
}

Result<RecordLog> open_log(const fs::path& path) {
  TRY(make_directories(path.parent_path()));
  uint64_t cut = 0;
  auto log = TRY(RecordLog::open(path, &cut));
  if (cut > 0) spdlog::warn("{}: the last {} bytes were torn off by a crash and cut", path.string(), cut);
  return log;
}

}  // namespace

fs::path ledger_log_path(const fs::path& run_dir) { return run_dir / "ledger" / "events.log"; }

Result<Ledger> read_ledger(const fs::path& run_dir, const PlanOfConfig& plan_of_config) {
  const fs::path path = ledger_log_path(run_dir);
  const auto said = fs::exists(path) ? TRY(plan_in(path)) : std::nullopt;
  Ledger ledger;
  if (!said) {
    RunPlan plan = TRY(plan_of_config());
    plan.on_lag = OnLag::kUnbound;
    ledger = Ledger(std::move(plan));
  } else if (!said->is_first) {
    ledger = Ledger(said->plan);
  }
  if (fs::exists(path)) TRY(replay(path, ledger));
  return ledger;
}

Result<Ledger> read_ledger(const fs::path& run_dir, RunPlan plan_of_config) {
  return read_ledger(run_dir, [&]() -> Result<RunPlan> { return std::move(plan_of_config); });
}

Status record_terms(const fs::path& run_dir, const RunTerms& recorded, const RunTerms& wanted) {
  const fs::path path = ledger_log_path(run_dir);
  auto log = TRY(open_log(path));
  const auto say = [&](const Event& event) -> Status {
    TRY(log.append(dump_json(to_json(event))));
    return {};
  };
  uint64_t records = 0;
  TRY(read_log(path, [&](std::string_view, uint64_t) -> Status { return ++records, Status(); }));
  if (records == 0) {
    TRY(say(PlanSet{wanted.plan}));
    TRY(say(ConfigSet{wanted.config}));
    return log.sync();
  }
  const auto said = TRY(plan_in(path));
  if (!said) {
    RunPlan plan = recorded.plan;
    plan.on_lag = OnLag::kUnbound;
    TRY(say(PlanSet{plan}));
  }
  const Ledger ledger = TRY(read_ledger(run_dir, recorded.plan));
  if (wanted.plan.steps > ledger.plan().steps) TRY(say(Extended{wanted.plan.steps}));
  const Json& before = ledger.config().empty() ? recorded.config : ledger.config();
  Json changed = ledger.config().empty() ? recorded.config : Json::object();
  if (!changed.empty()) TRY(say(ConfigSet{std::exchange(changed, Json::object())}));
  for (const auto& [key, value] : wanted.config.items()) {
    const auto was = before.find(key);
    if (was == before.end() || *was != value) changed[key] = value;
  }
  if (!changed.empty()) TRY(say(ConfigSet{changed}));
  return log.sync();
}

Result<LedgerLog> LedgerLog::open(const fs::path& run_dir) {
  const fs::path path = ledger_log_path(run_dir);
  auto log = TRY(open_log(path));
  const auto no_plan = [&]() -> Result<RunPlan> {
    return fail(Status::corrupt("does not say what the run is to do")
                    .at(path.string())
                    .hint("`tandem run CONFIG --resume --run-dir RUN` writes it before it starts the roles"));
  };
  auto ledger = TRY(read_ledger(run_dir, no_plan));
  return LedgerLog(std::move(log), std::move(ledger));
}

Result<std::vector<Action>> LedgerLog::apply(const Event& event) {
  TRY(log_.append(dump_json(to_json(event))));
  unsynced_ = true;
  return ledger_.step(event);
}

Status LedgerLog::sync() {
  if (!std::exchange(unsynced_, false)) return {};
  return log_.sync();
}

}  // namespace tandem::rollout
