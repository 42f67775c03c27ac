#include "cli/run/run_end.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/json_file.h"
#include "cli/command.h"
#include "cli/run/run_view.h"
#include "dashboard/report.h"
#include "dashboard/run_files.h"
#include "dashboard/summary.h"
#include "dashboard/verdict.h"
#include "envs/episodes/profile.h"

namespace tandem::cli {
namespace {

Status write_failure(const fs::path& run_dir, const std::string& reason, const Json& status, const Clock& clock) {
  const Json failure = {{"reason", reason}, {"time", clock.unix_seconds()}, {"status", status}};
  return write_file(run_dir / "failure.json", with_format(failure, dashboard::kFailureFormat).dump(2) + "\n");
}

}  // namespace

Result<Json> conclude(const fs::path& run_dir, const run::RunConfig& config, Tensorboard& tensorboard) {
  const auto run = TRY(dashboard::read_run(run_dir, TRY(run::plan_of(config, run_dir))));
  const Json summary = dashboard::summarise(run);
  TRY(write_file(run_dir / "summary.json", with_format(summary, dashboard::kSummaryFormat).dump(2) + "\n"));
  TRY(dashboard::write_report(run));
  tensorboard.finish(run.steps);
  if (fs::exists(run_dir / "export"))
    TRY(write_file(run_dir / "export" / envs::kProfileFile, TRY(read_file(run_dir / envs::kProfileFile, 1 << 20))));
  return summary;
}

Result<int> record_end(const EndedRun& ended, const Clock& clock, const std::function<void(const Json&)>& show,
                       bool& failure_recorded) {
  const auto& [config, run_dir, supervisor, disk, tensorboard, attempt] = ended;
  const auto end = supervisor.end();
  std::vector<std::string> lacks;
  std::string note;
  if (end == run::Supervisor::End::kDone) {
    const auto run = TRY(dashboard::read_run(run_dir, TRY(run::plan_of(config, run_dir))));
    lacks = dashboard::lacks_of(run);
    if (lacks.empty()) note = dashboard::note_of(run);
  }
  const bool is_given_up = supervisor.report().contains("given_up");
  const bool is_cut_short = !disk.why().ok() && end == run::Supervisor::End::kInterrupted;
  const int exit = !lacks.empty() || is_given_up || is_cut_short ? kIncomplete
                   : end == run::Supervisor::End::kDone          ? kDone
                   : end == run::Supervisor::End::kInterrupted   ? kInterrupted
                                                                 : kFailed;
  const Json record = {{"run_id", fs::absolute(run_dir).filename().string()},
                       {"exit", exit},
                       {"wall_seconds", supervisor.wall_seconds()},
                       {"cores", std::max(1u, std::thread::hardware_concurrency())},
                       {"restarts", supervisor.restarts()},
                       {"attempt", attempt},
                       {"last_report", supervisor.report()}};
  TRY(write_file(run_dir / "supervisor.json", with_format(record, dashboard::kSupervisorFormat).dump(2) + "\n"));
  if (end == run::Supervisor::End::kFailed) {
    TRY(write_failure(run_dir, supervisor.failure(), supervisor.status(), clock));
    failure_recorded = true;
    (void)conclude(run_dir, config, tensorboard);  // as far as what failed allows
    const auto failure = Status::internal(supervisor.failure()).at(run_dir.string());
    if (!is_given_up) return fail(failure);
    fmt::print(stderr, "tandem run: {}\n", failure.message());
    return kIncomplete;
  }
  const Json summary = TRY(conclude(run_dir, config, tensorboard));
  show(summary);
  if (is_cut_short) lacks.push_back(disk.why().to_string());
  for (const std::string& lack : lacks) fmt::print(stderr, "tandem run: {}\n", lack);
  if (!lacks.empty()) {
    TRY(write_failure(run_dir, fmt::format("{}", fmt::join(lacks, "; ")), supervisor.status(), clock));
    failure_recorded = true;
  }
  if (!note.empty()) fmt::print(stderr, "warning: {}\n", note);
  return exit;
}

}  // namespace tandem::cli
