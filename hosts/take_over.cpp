#include "hosts/take_over.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <optional>

#include "base/json_file.h"
#include "base/text.h"
#include "hosts/bundle.h"
#include "hosts/reach.h"
#include "rollout/books/ledger_log.h"
#include "run/checks.h"
#include "run/layout.h"
#include "run/resume.h"
#include "run/spread.h"
#include "run/standby.h"
#include "run/tasks.h"
#include "standby/record.h"

namespace tandem::hosts {
namespace {

using Progress = std::function<void(const std::string&)>;

constexpr double kTakeOverReachSeconds = 3;
constexpr int kMovedFormat = 1;
constexpr const char *kConfigFile = "config.resolved.json", *kTasksFile = "tasks.json";

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// What a run goes on with, read before it is taken over.
struct Left {
  run::RecordedConfig recorded;
  rollout::Ledger books;
  std::map<std::string, std::string> moved;  // config key -> path within the copy
};

Result<std::map<std::string, std::string>> moved_in(const fs::path& folder) {
  std::map<std::string, std::string> moved;
  const fs::path path = folder / run::kMovedFile;
  if (!is_there(path)) return moved;
  const Json json = TRY(read_json_file(path, kMovedFormat, 1 << 16));
  for (const auto& [key, to] : json.items()) {
    if (!to.is_string()) return fail(Status::corrupt("has what is no path").at(path.string()));
    moved[key] = to.get<std::string>();
  }
  return moved;
}

Result<Left> read_left(const fs::path& folder) {
  auto recorded = TRY(run::read_recorded(folder));
  auto moved = TRY(moved_in(folder));
  auto books = TRY(rollout::read_books(folder, [&] { return run::plan_of(recorded.config, folder); }));
  return Left{.recorded = std::move(recorded), .books = std::move(books), .moved = std::move(moved)};
}

// The config as it is on this machine, where the hosts are that answer.
Result<run::RunConfig> config_here(const fs::path& folder, const Left& left, const standby::Record& record,
                                   const Progress& progress) {
  run::RunConfig config = left.recorded.config;
  Schema schema = schema_of(config);
  for (const auto& [key, path] : left.moved) {
    for (const Field& field : schema.fields()) {
      if (field.path == key) field.set((folder / path).string());
    }
  }
  std::vector<std::string> reached;
  for (const std::string& host : config.run.hosts) {
    if (reach(TRY(wire::Address::parse(host)), kTakeOverReachSeconds))
      reached.push_back(host);
    else
      progress(fmt::format("host {} cannot be reached: the run goes on without it", run::name_of_host(host)));
  }
  if (reached.size() < config.run.hosts.size() && !config.run.topology.empty()) {
    progress("run.topology names a host that is not there: rollouts are dealt out anew");
    config.run.topology.clear();
  }
  config.run.hosts = std::move(reached);
  config.run.standby.clear();
  config.run.standby_takes_over = "operator";
  config.run.address.clear();
  config.run.key = record.key;
  if (config.run.hosts.empty()) {
    progress("no host of the run can be reached: all its processes run on this machine");
    config.run.key.clear();
    config.run.topology.clear();
  }
  return config;
}

}  // namespace

Status copy_run(const run::RunConfig& config, const fs::path& run_dir, standby::Replicator& standby,
                const Progress& progress) {
  TRY(write_file(run_dir / run::kMovedFile,
                 dump_json(with_format(TRY(moved_paths(config, run_dir)), kMovedFormat)) + "\n"));
  const Bundle bundle = TRY(bundle_of(config, run_dir));
  for (size_t i = 0; i < bundle.files.size(); ++i) {
    const HomeFile& file = bundle.files[i];
    if (file.link.empty())
      TRY(standby.put(file.path, bundle.sources[i]));
    else
      (void)standby.link(file.path, file.link);
  }
  if (is_there(run_dir / "teacher")) TRY(standby.put_all("teacher"));
  if (const fs::path lock = config.env.packages.lock; !lock.empty() && is_there(lock))
    TRY(standby.put(kPackagesLock, lock));
  for (const char* file : {"config.yaml", kTasksFile, "origin.json", envs::kProfileFile, run::kMovedFile}) {
    if (is_there(run_dir / file)) TRY(standby.put(file));
  }
  // What makes a run directory of it comes last.
  const uint64_t mark = TRY(standby.put(kConfigFile));
  TRY(standby.wait(mark));
  const Json report = standby.report(0);
  progress(fmt::format("the standby {} keeps a copy in {}", report["host"].get<std::string>(),
                       report["folder"].get<std::string>()));
  return {};
}

Result<TakeOver> take_over(const fs::path& given, bool accepts_loss, const Progress& progress) {
  const fs::path folder = fs::absolute(given).lexically_normal();
  if (auto known = standby::read_record_of(folder); !known) {
    const Status& why = known.error();
    return fail(why.code() == Code::kNotFound ? Status::invalid(why.message()).hint(why.hint()) : why);
  }
  auto claimed = run::claim_run_dir(folder);
  if (!claimed && claimed.error().code() == Code::kInvalid) {
    return fail(std::move(claimed).error().hint(
        "the run goes on here already, by an operator or by run.standby_takes_over=majority; `tandem view` shows it"));
  }
  const auto claim = TRY(std::move(claimed));
  if (!is_there(folder / kConfigFile) || !is_there(rollout::ledger_log_path(folder))) {
    return fail(Status::invalid(fmt::format("{} has no run yet: its first copy was not whole", folder.string()))
                    .hint("go on in the run's own directory, by --resume"));
  }
  standby::Record record;
  std::optional<Left> left;
  {
    const auto lock = TRY(standby::RecordLock::take(folder));
    record = TRY(standby::read_record_of(folder));
    if (!record.is_taken && !record.behind.empty() && !accepts_loss) {
      return fail(Status::invalid(fmt::format("the run went on without this copy, which has not caught up: {}",
                                              fmt::join(record.behind, ", ")))
                      .hint("go on in the run's own directory, by --resume; where that is lost, --accept-loss takes "
                            "what is here"));
    }
    // A copy that cannot be read must not end a side that may be alive.
    left.emplace(TRY(read_left(folder)));
    if (!record.is_taken) {
      if (left->recorded.config.run.standby_lost == "go_on" && record.behind.empty()) {
        progress(
            "run.standby_lost is go_on: what the run did while it could not reach this copy, if anything, is not here");
      }
      record.is_taken = true;
      ++record.epoch;
      record.holder = run::name_of_host(record.host);
      TRY(standby::write_record_of(folder, record));
    }
  }
  TRY(run::RunLayout::take_over(folder, record.run, record.epoch));
  if (left->books.epoch() < record.epoch) {
    const run::RunConfig here = TRY(config_here(folder, *left, record, progress));
    if (is_there(folder / kTasksFile) && !here.tasks.path.empty()) {
      Json tasks = TRY(run::read_tasks_record(folder));
      tasks["path"] = here.tasks.path;
      TRY(write_file(folder / kTasksFile, dump_json(with_format(tasks, run::kTasksFormat)) + "\n"));
    }
    TRY(run::write_recorded(folder, here, left->recorded.given));
    // The log last: with it all of this is done.
    TRY(rollout::record_take_over(folder, record.epoch, record.holder));
  }
  return TakeOver{.holder = record.holder, .epoch = record.epoch};
}

Status check_is_no_copy(const fs::path& run_dir) {
  const auto record = standby::read_record_of(run_dir);
  if (!record && record.error().code() == Code::kNotFound) return {};
  if (!record) return record.error();
  if (record->is_taken) return {};
  return Status::invalid(
             fmt::format("{} is the copy that host {} keeps of run {}", run_dir.string(), record->host, record->name))
      .hint("`tandem run --take-over` goes on with it where the run's own machine is lost");
}

}  // namespace tandem::hosts
