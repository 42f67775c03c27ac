// `tandem run`.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "base/json_file.h"
#include "base/json_line.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/run/demonstrations.h"
#include "cli/run/dry_run.h"
#include "cli/run/floors.h"
#include "cli/run/prepare_bases.h"
#include "cli/run/run_dir.h"
#include "cli/run/run_end.h"
#include "cli/run/run_inputs.h"
#include "cli/run/run_start.h"
#include "cli/run/run_view.h"
#include "cli/run/search_progress.h"
#include "cli/run/stop_signals.h"
#include "dashboard/run_files.h"
#include "envs/backends/backends.h"
#include "envs/server/server.h"
#include "envs/tasks/workspace/kinds.h"
#include "hosts/launcher.h"
#include "hosts/take_over.h"
#include "kernels/stream.h"
#include "model/weights.h"
#include "rollout/books/alarms.h"
#include "rollout/coordinator.h"
#include "run/checks.h"
#include "run/disk.h"
#include "run/env_hosts.h"
#include "run/resume.h"
#include "run/rewards.h"
#include "run/run_step.h"
#include "run/standby.h"
#include "run/supervisor.h"
#include "run/tasks.h"
#include "standby/record.h"

namespace tandem::cli {

namespace {

// Memory of a process of each role that hosts are given, as far as it is known beforehand.
hosts::Needs needs_of(const run::RunConfig& config, const Json& memory) {
  hosts::Needs needs;
  for (const auto role : {wire::Role::kRollout, wire::Role::kRelay}) {
    const Json parts = memory.value(fmt::format("{} (each)", to_string(role)), Json::object());
    for (const auto& [what, bytes] : parts.items()) needs[role] += bytes.get<uint64_t>();
  }
  if (!needs.empty())
    needs[wire::Role::kEnv] = static_cast<uint64_t>(config.env.read_cache_mb + config.env.beginnings_mb) << 20;
  return needs;
}

// On this machine, or on the hosts that the config names.
struct Launching {
  run::LocalLauncher local;
  std::unique_ptr<hosts::HostLauncher> hosts;
  run::Launcher& launcher() { return hosts ? static_cast<run::Launcher&>(*hosts) : local; }
};

void write_failure(const fs::path& run_dir, const Status& failure) {
  const SystemClock clock;
  const Json record = {
      {"reason", failure.to_string()}, {"time", clock.unix_seconds()}, {"exit", exit_code_of(failure)}};
  (void)write_file(run_dir / "failure.json", with_format(record, dashboard::kFailureFormat).dump(2) + "\n");
}

// For job scripts, whose output may be lost: why there is no run in --run-dir, in failure.json.
void record_failure(const RunOptions& options, const Status& failure) {
  const fs::path run_dir = options.run_dir;
  if (run_dir.empty()) return;
  const auto claim = run::claim_run_dir(run_dir);
  if (!claim) return;  // another process has it, and its failures are its own
  write_failure(run_dir, failure);
}

constexpr Duration kStandbyPatience = std::chrono::seconds(5);
constexpr Duration kStandbyLongPatience = std::chrono::seconds(30);

// Where a run goes on that was taken over; empty for all others.
std::string holder_of(const fs::path& run_dir) {
  const auto record = standby::read_record_of(run_dir);
  return record ? record->holder : "";
}

// Why this side of the run is to end; empty where it is the only one.
std::string taken_over(const Launching& launching, const standby::Replicator* standby) {
  if (launching.hosts) {
    if (std::string by_host = launching.hosts->taken_over(); !by_host.empty()) return by_host;
  }
  return standby == nullptr ? "" : standby->check().message();
}

void sweep(const fs::path& run_dir, const run::RunLayout& layout) {
  for (const auto& line : run::Supervisor::sweep(run_dir, layout)) fmt::print(stderr, "swept: {}\n", line);
}

// The run directory, which is ours from here on, with what the run began with; checked before what is asked for is
// kept, so that a start that is refused leaves the values as they were.
Status open_folder(const RunOptions& options, RunStart& start, const Clock& clock) {
  const run::RunConfig& config = start.config;
  if (!start.claim) {
    if (start.has_new_name) start.run_dir = TRY(make_run_dir(config.run.dir, start.stem));
    start.claim = TRY(run::claim_run_dir(start.run_dir));
    if (fs::exists(start.run_dir / "config.resolved.json"))
      return Status::invalid(fmt::format("{} has just been taken by another run", start.run_dir.string()));
  }
  if (start.exists && fs::exists(start.run_dir / "model" / "config.json")) {
    const uint64_t reserve = TRY(growth_of(config, start.run_dir / "model")).reserve();
    TRY(run::DiskWatch(start.run_dir, TRY(run::disk_limit_of(config)), reserve, clock).room());
  }
  if (!start.exists && !options.config.empty())
    TRY(write_file(start.run_dir / "config.yaml", TRY(read_file(options.config, 1 << 20))));
  if (start.tasks && !start.exists) TRY(run::record_tasks(config, *start.tasks, start.run_dir));
  return {};
}

Result<Launching> launching_of(const RunStart& start, const run::RunLayout& layout, const Clock& clock) {
  Launching launching;
  const run::RunConfig& config = start.config;
  if (config.run.hosts.empty()) return launching;
  auto numerics_id = TRY(kernels::Stream::cpu(1)).numerics_id(config.model.weights);
  launching.hosts =
      std::make_unique<hosts::HostLauncher>(hosts::LauncherSettings{.run_dir = fs::absolute(start.run_dir),
                                                                    .config = config,
                                                                    .topology = start.topology,
                                                                    .layout = layout,
                                                                    .version = TANDEM_VERSION,
                                                                    .numerics_id = std::move(numerics_id),
                                                                    .needs = needs_of(config, start.memory),
                                                                    .holder = holder_of(start.run_dir)},
                                            clock);
  return launching;
}

// The log of a run that goes on is written first: the run does what it says, and one of format 1 means what the config
// said until now.
Status record_plan(const RunStart& start) {
  const fs::path& run_dir = start.run_dir;
  const rollout::RunTerms before{TRY(run::plan_of(start.recorded, run_dir)), run::flat(start.recorded)};
  if (!start.exists) TRY(run::write_recorded(run_dir, start.config, start.given));
  TRY(rollout::record_terms(run_dir, before, {TRY(run::plan_of(start.config, run_dir)), run::flat(start.config)}));
  if (start.exists) TRY(run::write_recorded(run_dir, start.config, start.given));
  TRY(record_profile(run_dir, TRY(run::profile_of(start.config))));
  TRY(run::record_rewards(start.config, run_dir));
  return run::greet_env_hosts(start.config, run_dir);
}

// What roles read in the run directory: bases of tasks, models, demonstrations.
Status provide_inputs(const RunStart& start) {
  if (start.tasks) fmt::print(stderr, "{}\n", describe(start.config, *start.tasks));
  if (start.tasks) TRY(prepare_bases(start.tasks->tasks()));
  TRY(provide_model(start.config, start.run_dir));
  if (const Status taught = provide_teacher(start.config, start.run_dir); !taught)
    return Status(taught).at(start.config.algorithm.teacher.is_remote() ? "algorithm.teacher.url"
                                                                        : "algorithm.teacher.path");
  return provide_demonstrations(start.config, start.run_dir);
}

// Standby and hosts, in this order: a host that is not there must not hide who has the run now.
Status reach_others(const RunStart& start, const Launching& launching, standby::Replicator* standby) {
  const auto say = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  if (start.exists && standby != nullptr) TRY(standby->meet(kStandbyPatience));
  if (launching.hosts) {
    const Status prepared = launching.hosts->prepare(say);
    // A standby that was only slow may still tell who has the run, which is why the others are not there.
    if (!prepared && start.exists && standby != nullptr) TRY(standby->meet(kStandbyLongPatience));
    TRY(prepared);
  }
  return standby == nullptr ? Status() : hosts::copy_run(start.config, start.run_dir, *standby, say);
}

// Plays the scripted baselines beside the run; ends when it does.
class FloorsBeside {
 public:
  explicit FloorsBeside(const RunStart& start) {
    if (!start.config.tasks.floors || start.config.tasks.heldout <= 0) return;
    if (fs::exists(start.run_dir / "floors.json")) return;
    thread_ = std::jthread([this, &start] {
      auto backend = envs::start_sandboxes(start.run_dir.string(), start.config.env.sandbox, start.config.env.engine);
      if (!backend) return;
      const envs::MakeTask make_task =
          start.tasks ? envs::MakeTask([&](const envs::TaskSpec& spec) { return start.tasks->task(spec); })
                      : envs::make_task;
      const Json rates = play_floors(run::heldout_specs(start.config, start.tasks), make_task, **backend, cancelled_);
      if (!cancelled_)
        (void)write_file(start.run_dir / "floors.json", with_format(rates, dashboard::kFloorsFormat).dump(2) + "\n");
    });
  }
  ~FloorsBeside() { end(); }
  void end() {
    cancelled_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> cancelled_{false};
  std::jthread thread_;
};

// Shows the run until its last process has ended. Returns why, where it was taken over by another machine; else empty.
std::string watch(RunStart& start, Launching& launching, standby::Replicator* standby, run::Supervisor& supervisor,
                  run::DiskWatch& disk, Tensorboard& tensorboard, const Clock& clock) {
  size_t shown_notes = 0;
  Screen screen(start.run_dir, clock);
  dashboard::MetricsFollower alarms(start.run_dir);
  if (start.exists) (void)alarms.next();  // what an earlier attempt said
  const auto show = [&] {
    for (; shown_notes < supervisor.notes().size(); ++shown_notes) screen.note(supervisor.notes()[shown_notes]);
  };
  const auto show_alarms = [&] {
    for (const Json& line : alarms.next()) {
      for (const Json& alarm : line.value("alarms", Json::array()))
        screen.note(rollout::alarm_line(static_cast<uint64_t>(dashboard::number_at(line, "step")), alarm));
    }
  };
  std::string taken;
  while (supervisor.turn()) {
    if (const Status lost = start.claim->check(); !lost.ok()) supervisor.lose_directory(lost.message());
    if (taken.empty() && !(taken = taken_over(launching, standby)).empty()) supervisor.give_up(taken);
    if (disk.has_run_out()) {
      screen.note(disk.why().message());
      supervisor.interrupt({run::Supervision::Interrupted::By::kScheduler});
    }
    if (standby != nullptr) {
      for (std::string& line : standby->news()) supervisor.note(std::move(line));
    }
    while (const auto interrupt = next_interrupt()) supervisor.interrupt(*interrupt);
    show();
    screen.show(supervisor.report());
    show_alarms();
    tensorboard.follow();
  }
  show();
  show_alarms();
  screen.wipe();
  // A role may hear of it first, and end the run.
  const Time patience = clock.now() + kStandbyPatience;
  while (taken.empty() && standby != nullptr && !supervisor.failure().empty() && clock.now() < patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    taken = taken_over(launching, standby);
  }
  return taken;
}

Status print_plan(const RunOptions& options, const RunStart& start) {
  std::optional<run::DiskGrowth> growth;
  fs::path model;
  if (!start.is_tiny) {
    model = TRY(run::model_to_check(start.checked.model.path));
    growth = TRY(growth_of(start.config, model));
  }
  return print_dry_run({.config = start.config,
                        .schema = start.schema,
                        .topology = start.topology,
                        .tasks = start.tasks ? describe(start.config, *start.tasks) : run::describe_kinds(start.config),
                        .memory = start.memory,
                        .memory_needed = start.memory_needed,
                        .memory_here = start.memory_here,
                        .memory_lack = start.memory_lack,
                        .growth = growth,
                        .model = model},
                       options.json);
}

// `failure_recorded`: failure.json says it already.
Result<int> run_training(const RunOptions& options, bool& failure_recorded) {
  const SystemClock clock;
  RunStart start;
  const run::RunConfig& config = start.config;
  const fs::path& run_dir = start.run_dir;
  const auto show = [&](const Json& summary) {
    if (options.json)
      fmt::print("{}\n", dump_json_line(summary));
    else
      print_result(run_dir, summary, config.run.steps);
  };
  TRY(find_run(options, start));
  if (TRY(is_done(start))) {
    fmt::print(stderr, "{} is done already\n", run_dir.string());
    // As where it was killed after its last step.
    if (const auto layout = run::RunLayout::open(run_dir)) sweep(run_dir, *layout);
    Tensorboard tensorboard(run_dir, clock);
    show(TRY(conclude(run_dir, config, tensorboard)));
    return kDone;
  }
  TRY(check_start(start));
  if (options.dry_run) {
    TRY(print_plan(options, start));
    return kDone;
  }

  TRY(open_folder(options, start, clock));
  int attempt = 1;
  while (fs::exists(run_dir / "logs" / fmt::format("attempt_{}", attempt))) ++attempt;
  const auto layout = TRY(run::RunLayout::establish(run_dir));
  Launching launching = TRY(launching_of(start, layout, clock));
  run::Supervisor supervisor(run_dir, config, start.topology, layout, launching.launcher(), clock, attempt);
  sweep(run_dir, layout);
  TRY(record_plan(start));
  TRY(provide_inputs(start));
  const uint64_t reserve = TRY(growth_of(config, run_dir / "model")).reserve();
  run::DiskWatch disk(run_dir, TRY(run::disk_limit_of(config)), reserve, clock);
  TRY(disk.room());
  if (start.encoder) {
    const auto files = start.tasks ? std::span<const envs::Task>(start.tasks->tasks()) : std::span<const envs::Task>();
    TRY(prepare_search(*start.encoder, files, run_dir));
  }
  const auto standby =
      TRY(run::replicator_of(config, layout, run_dir, {wire::Role::kSupervisor, 0}, static_cast<uint64_t>(attempt)));
  TRY(reach_others(start, launching, standby.get()));

  fmt::print(stderr, "run {}\n", run_dir.string());
  if (launching.hosts) fmt::print(stderr, "more hosts may join at {}\n", launching.hosts->join_address());
  std::error_code ignored;
  fs::remove(run_dir / "failure.json", ignored);  // of an earlier attempt
  keep_signals();
  TRY(supervisor.start());
  FloorsBeside floors(start);
  Tensorboard tensorboard(run_dir, clock);
  const std::string taken = watch(start, launching, standby.get(), supervisor, disk, tensorboard, clock);
  run::leave_env_hosts(config, run_dir);
  floors.end();

  if (!taken.empty()) {
    const Status fenced =
        Status::unfit(taken).at(run_dir.string()).hint("it goes on there; what is here is of no more use to it");
    write_failure(run_dir, fenced);
    failure_recorded = true;
    return fail(fenced);
  }
  if (!supervisor.holds_directory()) {
    return fail(Status::unavailable(supervisor.failure())
                    .at(run_dir.string())
                    .hint("it is as the last step left it: `tandem run CONFIG --resume --run-dir` where it is now goes "
                          "on with it"));
  }
  // A signal to all processes ends the spawner of sandboxes, too, before it has removed their control groups: the next
  // spawner does.
  if (supervisor.end() == run::Supervisor::End::kInterrupted && run::has_local_env(config))
    (void)envs::start_sandboxes("", config.env.sandbox, config.env.engine);
  return record_end({.config = config,
                     .run_dir = run_dir,
                     .supervisor = supervisor,
                     .disk = disk,
                     .tensorboard = tensorboard,
                     .attempt = attempt},
                    clock, show, failure_recorded);
}

// What is asked for beside --take-over, before anything changes: once it is taken over, the old side cannot go on.
Status check_asked(const RunOptions& options) {
  run::RunConfig config;
  Schema schema = schema_of(config);
  schema.known_elsewhere(keys_of_all_configs());
  TRY(schema.read(options.config, options.overrides));
  if (!fs::exists(fs::path(options.take_over) / "config.resolved.json"))
    return {};  // no run: hosts::take_over says why
  const auto recorded = TRY(run::read_recorded(options.take_over));
  const auto resumed = TRY(run::resume_config(recorded, config, schema, options.take_over));
  return run::check(resumed.config);
}

// CONFIG and its overrides, or a copy that is taken over, and overrides alone.
Status read_what_is_run(RunOptions& options) {
  if (options.take_over.empty()) {
    if (options.accept_loss) return Status::invalid("--accept-loss is for --take-over");
    std::error_code error;
    // A run keeps its config, so that --resume --run-dir DIR says enough.
    if (const fs::path own = fs::path(options.run_dir) / "config.yaml";
        options.resume && !options.run_dir.empty() && fs::exists(own, error) &&
        (options.config.empty() ||
         (options.config.find('=') != std::string::npos && !fs::exists(options.config, error)))) {
      if (!options.config.empty()) options.overrides.insert(options.overrides.begin(), std::move(options.config));
      options.config = own.string();
    }
    if (options.config.empty() && options.resume && !options.run_dir.empty())
      return Status::invalid(fmt::format("{}: there is no run to go on with", options.run_dir));
    if (options.config.empty()) return Status::invalid("which config? It is the first argument");
    if (!fs::exists(options.config, error)) return Status::invalid(options.config + ": there is no such file");
    if (fs::is_directory(options.config, error)) {
      Status folder = Status::invalid(options.config + ": is a folder, not a config");
      if (!fs::exists(fs::path(options.config) / "config.yaml", error)) return folder;
      return std::move(folder).hint(
          fmt::format("a run goes on with `tandem run --resume --run-dir {}`", options.config));
    }
    return {};
  }
  if (options.resume_or_start || options.dry_run || !options.run_dir.empty())
    return Status::invalid(
        "--take-over says which run it is, and begins at once: leave out --run-dir, --resume-or-start and --dry-run");
  if (!options.config.empty()) {
    if (options.config.find('=') == std::string::npos)
      return Status::invalid(
          fmt::format("--take-over goes on with the config of the run; leave out {}", options.config));
    options.overrides.insert(options.overrides.begin(), std::exchange(options.config, {}));
  }
  TRY(check_asked(options));
  const auto taken = TRY(hosts::take_over(options.take_over, options.accept_loss,
                                          [](const std::string& line) { fmt::print(stderr, "{}\n", line); }));
  fmt::print(stderr, "taken over: the run has epoch {} from now on\n", taken.epoch);
  options.run_dir = options.take_over;
  options.resume = true;
  return {};
}

}  // namespace

Action add_run(CLI::App& command) {
  auto options = std::make_shared<RunOptions>();
  command.add_option("config", options->config, "YAML file");
  command.add_option("overrides", options->overrides, "key=value, over the file's");
  command.add_option("--run-dir", options->run_dir, "Folder of the run (default: a new one below runs/)");
  auto* resume = command.add_flag(
      "--resume", options->resume,
      "Go on with the run in --run-dir (which keeps its config), or with the newest of this config that is not done");
  command
      .add_flag(
          "--resume-or-start", options->resume_or_start,
          "Go on with the run in --run-dir, or with the newest of this config that is not done; where there is none, "
          "start it. For job scripts")
      ->excludes(resume);
  command
      .add_option(
          "--take-over", options->take_over,
          "Go on with the run whose copy is in this folder of its standby (run.standby), where its own machine is "
          "lost. In place of CONFIG")
      ->excludes(resume);
  command.add_flag("--accept-loss", options->accept_loss,
                   "With --take-over: also where the run went on without copying");
  command.add_flag("--dry-run", options->dry_run,
                   "Say what would be done, with memory and batch arithmetic, and do nothing");
  command.add_flag("--json", options->json, "Print results as JSON");
  command.footer(
      "Examples:\n  tandem run configs/quickstart.yaml\n  tandem run configs/quickstart.yaml run.steps=20 "
      "trainer.learning_rate=1e-5\n"
      "  tandem run configs/quickstart.yaml rollout.branch.ways=4 rollout.branch.last_turn=3\n"
      "  tandem run --resume --run-dir runs/mine\n  tandem run configs/quickstart.yaml "
      "--resume-or-start --run-dir runs/mine\n"
      "  tandem run --take-over ~/.cache/tandem/host/standby/0859e742ac1d2ef1\n"
      "Exit codes: 0 done, 1 failed, 2 wrong config, 3 unfit machine, 5 nothing scored or learned or no room, 6 "
      "damaged "
      "files, 75 interrupted with a checkpoint");
  return [options]() -> Result<int> {
    TRY(read_what_is_run(*options));
    if (!options->dry_run) end_on_signals();
    bool failure_recorded = false;
    const Result<int> outcome = run_training(*options, failure_recorded);
    if (!outcome && options->resume_or_start && !options->dry_run && !failure_recorded)
      record_failure(*options, outcome.error());
    return outcome;
  };
}

}  // namespace tandem::cli
