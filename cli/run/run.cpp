// `tandem run`.
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <set>
#include <thread>

#include "base/json_line.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/run/demonstrations.h"
#include "cli/run/dry_run.h"
#include "cli/run/floors.h"
#include "cli/run/prepare_bases.h"
#include "cli/run/run_dir.h"
#include "cli/run/run_end.h"
#include "cli/run/run_inputs.h"
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
#include "model/transformer.h"
#include "model/weights.h"
#include "rollout/books/alarms.h"
#include "rollout/coordinator.h"
#include "run/checks.h"
#include "run/devices.h"
#include "run/disk.h"
#include "run/effects.h"
#include "run/env_hosts.h"
#include "run/memory.h"
#include "run/read_config.h"
#include "run/resume.h"
#include "run/rewards.h"
#include "run/run_step.h"
#include "run/search.h"
#include "run/standby.h"
#include "run/supervisor.h"
#include "run/tasks.h"
#include "standby/record.h"
#include "trainer/torch/function_loader.h"

namespace tandem::cli {

namespace {

struct RunOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::string run_dir;
  std::string take_over;  // a copy of a run, which goes on in it
  bool accept_loss = false;
  bool resume = false, resume_or_start = false, dry_run = false, json = false;
};

// Memory of a process of each role that hosts are given, as far as it is known beforehand.
hosts::Needs needs_of(const run::RunConfig& config, const Json& memory) {
  hosts::Needs needs;
  const Json rollout = memory.value("rollout (each)", Json::object());
  for (const auto& [what, bytes] : rollout.items()) needs[wire::Role::kRollout] += bytes.get<uint64_t>();
  if (!needs.empty())
    needs[wire::Role::kEnv] = static_cast<uint64_t>(config.env.read_cache_mb + config.env.beginnings_mb) << 20;
  return needs;
}

// The key of the hosts, before it is used.
Status check_key(const fs::path& key) {
  std::error_code error;
  if (fs::exists(key, error)) {
    TRY(wire::Secret::read(key));
    return {};
  }
  return Status::invalid(fmt::format("{}: there is no such file", key.string()))
      .at("run.key")
      .hint("`tandem host --key FILE` makes it on a host; copy it here");
}

// On this machine, or on the hosts that the config names.
struct Launching {
  run::LocalLauncher local;
  std::unique_ptr<hosts::HostLauncher> hosts;
  run::Launcher& launcher() { return hosts ? static_cast<run::Launcher&>(*hosts) : local; }
};

// For job scripts, whose output may be lost: why there is no run in --run-dir, in failure.json.
void record_failure(const RunOptions& options, const Status& failure) {
  const fs::path run_dir = options.run_dir;
  if (run_dir.empty()) return;
  const auto claim = run::claim_run_dir(run_dir);
  if (!claim) return;  // another process has it, and its failures are its own
  const SystemClock clock;
  const Json record = {
      {"reason", failure.to_string()}, {"time", clock.unix_seconds()}, {"exit", exit_code_of(failure)}};
  (void)write_file(run_dir / "failure.json", record.dump(2) + "\n");
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

// `failure_recorded`: failure.json says it already.
Result<int> run_training(const RunOptions& options, bool& failure_recorded) {
  run::RunConfig config;
  Schema schema = schema_of(config);
  schema.known_elsewhere(keys_of_all_configs());
  const bool may_go_on = options.resume || options.resume_or_start;
  TRY(run::read_config(options.config, options.overrides, schema, config, may_go_on));
  if (auto& lock = config.env.packages.lock; !lock.empty()) lock = fs::absolute(lock).lexically_normal().string();
  for (const std::string& note : run::without_effect(config, schema)) fmt::print(stderr, "warning: {}\n", note);
  const std::string stem = fs::path(options.config).stem();
  fs::path run_dir = options.run_dir;
  bool is_new = false;  // a name of our own, which nobody else gets once it is made
  if (run_dir.empty()) {
    std::optional<fs::path> before;
    if (options.resume) before = TRY(newest_run(config.run.dir, stem));
    if (options.resume_or_start) before = newest_open_run(config.run.dir, stem);
    if (before) fmt::print(stderr, "going on with {}\n", before->string());
    is_new = !before;
    run_dir = before ? *before : free_run_dir(config.run.dir, stem);
  }
  if (!is_valid_utf8(run_dir.native()))
    return fail(Status::invalid("the name of the run directory is not UTF-8, as its files must write it"));
  std::optional<FolderLock> claim;  // of the run directory
  if (!is_new && fs::exists(run_dir)) {
    claim = TRY(run::claim_run_dir(run_dir));
    TRY(run::check_run_files(run_dir));
    TRY(hosts::check_is_no_copy(run_dir));
  }
  const bool exists = !is_new && fs::exists(run_dir / "config.resolved.json");
  if (exists && !options.resume && !options.resume_or_start) {
    return fail(Status::invalid(fmt::format("{} holds a run already", run_dir.string()))
                    .hint("go on with it by --resume, or choose another --run-dir"));
  }
  if (!exists && options.resume)
    return fail(Status::invalid(fmt::format("{} holds no run to resume", run_dir.string())));
  std::set<std::string> given = run::given_keys(schema);
  std::vector<run::ConfigChange> changes;
  run::RunConfig recorded = config;
  if (exists) {
    const run::RecordedConfig before = TRY(run::read_recorded(run_dir));
    run::ResumedConfig resumed = TRY(run::resume_config(before, config, schema, run_dir));
    recorded = before.config;
    given = std::move(resumed.given);
    changes = std::move(resumed.changes);
    config = std::move(resumed.config);
    TRY(run::check(config));
  }
  const SystemClock clock;
  const auto show = [&](const Json& summary) {
    if (options.json)
      fmt::print("{}\n", dump_json_line(summary));
    else
      print_result(run_dir, summary, config.run.steps);
  };
  if (exists) {
    const auto ledger = TRY(rollout::read_books(run_dir, [&] { return run::plan_of(recorded, run_dir); }));
    config.run.steps = std::max(config.run.steps, ledger.plan().steps);  // killed before the config was written
    if (ledger.finished() && config.run.steps == ledger.plan().steps) {
      if (!changes.empty()) {
        return fail(Status::invalid(fmt::format("{} cannot change: {} is done", changes.front().key, run_dir.string()))
                        .hint(fmt::format("run.steps above {} makes it go on", ledger.plan().steps)));
      }
      fmt::print(stderr, "{} is done already\n", run_dir.string());
      // As where it was killed after its last step.
      if (const auto layout = run::RunLayout::open(run_dir)) sweep(run_dir, *layout);
      Tensorboard tensorboard(run_dir, clock);
      show(TRY(conclude(run_dir, config, tensorboard)));
      return kDone;
    }
  }
  for (const auto& [key, before, after] : changes)
    fmt::print(stderr, "{}: {} -> {}\n", key, dump_json(before), dump_json(after));
  // A step of another run was copied when this one began, and may be there no more.
  run::RunConfig checked = config;
  if (exists && fs::exists(run_dir / "model" / "config.json") && !run::is_tiny(config.model.path))
    checked.model.path = (run_dir / "model").string();
  if (exists && fs::exists(run_dir / "teacher" / "config.json") && !config.algorithm.teacher.path.empty())
    checked.algorithm.teacher.path = (run_dir / "teacher").string();
  if (!exists) TRY(run::check_at_places(config, schema));
  TRY(run::check_inputs(checked));
  if (!exists) TRY(check_demonstrations(checked));
  TRY(trainer::load_functions(TRY(run::algorithm_of(config))));
  if (!config.run.hosts.empty()) TRY(check_key(config.run.key));
  std::optional<envs::TaskSet> tasks;
  if (!config.tasks.path.empty())
    tasks = TRY(exists ? run::read_recorded_tasks(config, run_dir) : run::read_task_set(config));
  const auto encoder = TRY(run::encoder_of(config));
  config.env.encoder = encoder ? encoder->string() : "";
  const bool tiny = run::is_tiny(config.model.path);
  if (tiny) TRY(tiny_settings(config));
  if (tiny && !exists) TRY(check_tiny_adapter(config));
  const Json memory =
      tiny ? Json::object()
           : TRY(run::memory_of(checked, TRY(model::read_config(TRY(run::model_to_check(checked.model.path))))));
  const run::Topology topology = TRY(run::topology_of(config));
  TRY(run::find_devices(config));
  const auto memory_needed = run::memory_need_here(memory, topology);
  const auto memory_here = memory_room();
  const auto memory_lack = run::memory_warning_of(memory_needed, memory_here, address_space_limit());
  if (!memory_lack.empty()) fmt::print(stderr, "warning: {}\n", memory_lack);
  const auto growth_of = [&](const fs::path& directory) -> Result<run::DiskGrowth> {
    return run::disk_growth_of(config, TRY(model::read_config(directory)));
  };
  if (options.dry_run) {
    std::optional<run::DiskGrowth> growth;
    if (!tiny) growth = TRY(growth_of(TRY(run::model_to_check(checked.model.path))));
    TRY(print_dry_run({.config = config,
                       .schema = schema,
                       .topology = topology,
                       .tasks = tasks ? describe(config, *tasks) : run::describe_kinds(config),
                       .memory = memory,
                       .memory_needed = memory_needed,
                       .memory_here = memory_here,
                       .memory_lack = memory_lack,
                       .growth = growth},
                      options.json));
    return kDone;
  }

  if (!claim) {
    if (is_new) run_dir = TRY(make_run_dir(config.run.dir, stem));
    claim = TRY(run::claim_run_dir(run_dir));
    if (fs::exists(run_dir / "config.resolved.json"))
      return fail(Status::invalid(fmt::format("{} has just been taken by another run", run_dir.string())));
  }
  // Before what is asked for is kept: a start that is refused leaves the values as they were.
  if (exists && fs::exists(run_dir / "model" / "config.json")) {
    const uint64_t reserve = TRY(growth_of(run_dir / "model")).reserve();
    TRY(run::DiskWatch(run_dir, TRY(run::disk_limit_of(config)), reserve, clock).room());
  }
  if (!exists && !options.config.empty())
    TRY(write_file(run_dir / "config.yaml", TRY(read_file(options.config, 1 << 20))));
  if (tasks && !exists) TRY(run::record_tasks(config, *tasks, run_dir));
  int attempt = 1;
  while (fs::exists(run_dir / "logs" / fmt::format("attempt_{}", attempt))) ++attempt;
  const auto layout = TRY(run::RunLayout::establish(run_dir));
  Launching launching;
  if (!config.run.hosts.empty()) {
    launching.hosts = std::make_unique<hosts::HostLauncher>(
        hosts::LauncherSettings{.run_dir = fs::absolute(run_dir),
                                .config = config,
                                .topology = topology,
                                .layout = layout,
                                .version = TANDEM_VERSION,
                                .numerics_id = TRY(kernels::Stream::cpu(1)).numerics_id(config.model.weights),
                                .needs = needs_of(config, memory),
                                .holder = holder_of(run_dir)},
        clock);
  }
  run::Supervisor supervisor(run_dir, config, topology, layout, launching.launcher(), clock, attempt);
  sweep(run_dir, layout);
  // Of a run that goes on the log first: what it says is what the run does, and a log of format 1 means what the config
  // said until now.
  const rollout::RunTerms before{TRY(run::plan_of(recorded, run_dir)), run::flat(recorded)};
  if (!exists) TRY(run::write_recorded(run_dir, config, given));
  TRY(rollout::record_terms(run_dir, before, {TRY(run::plan_of(config, run_dir)), run::flat(config)}));
  if (exists) TRY(run::write_recorded(run_dir, config, given));
  TRY(record_profile(run_dir, TRY(run::profile_of(config))));
  TRY(run::record_rewards(config, run_dir));
  TRY(run::greet_env_hosts(config, run_dir));
  if (tasks) fmt::print(stderr, "{}\n", describe(config, *tasks));
  if (tasks) TRY(prepare_bases(tasks->tasks()));
  TRY(provide_model(config, run_dir));
  if (const Status taught = provide_teacher(config, run_dir); !taught)
    return fail(Status(taught).at("algorithm.teacher.path"));
  TRY(provide_demonstrations(config, run_dir));
  run::DiskWatch disk(run_dir, TRY(run::disk_limit_of(config)), TRY(growth_of(run_dir / "model")).reserve(), clock);
  TRY(disk.room());
  if (encoder) {
    const auto files = tasks ? std::span<const envs::Task>(tasks->tasks()) : std::span<const envs::Task>();
    TRY(prepare_search(*encoder, files, run_dir));
  }
  const auto standby =
      TRY(run::replicator_of(config, layout, run_dir, {wire::Role::kSupervisor, 0}, static_cast<uint64_t>(attempt)));
  // Before other hosts are asked: one that is not there must not hide who has the run now.
  if (exists && standby) TRY(standby->meet(kStandbyPatience));
  if (launching.hosts) {
    const Status prepared = launching.hosts->prepare([](const std::string& line) { fmt::print(stderr, "{}\n", line); });
    // A standby that was only slow may still tell who has the run, which is why the others are not there.
    if (!prepared && exists && standby) TRY(standby->meet(kStandbyLongPatience));
    TRY(prepared);
  }

  if (standby)
    TRY(hosts::copy_run(config, run_dir, *standby, [](const std::string& line) { fmt::print(stderr, "{}\n", line); }));

  fmt::print(stderr, "run {}\n", run_dir.string());
  if (launching.hosts) fmt::print(stderr, "more hosts may join at {}\n", launching.hosts->desk());
  std::error_code ignored;
  fs::remove(run_dir / "failure.json", ignored);  // of an earlier attempt
  keep_signals();
  TRY(supervisor.start());

  std::atomic<bool> floors_cancelled{false};
  std::jthread floors;
  if (config.tasks.floors && config.tasks.heldout > 0 && !fs::exists(run_dir / "floors.json")) {
    floors = std::jthread([&] {
      auto backend = envs::start_sandboxes(run_dir.string(), config.env.sandbox, config.env.engine);
      if (!backend) return;
      const envs::MakeTask make_task =
          tasks ? envs::MakeTask([&](const envs::TaskSpec& spec) { return tasks->task(spec); }) : envs::make_task;
      const Json rates = play_floors(run::heldout_specs(config, tasks), make_task, **backend, floors_cancelled);
      if (!floors_cancelled) (void)write_file(run_dir / "floors.json", rates.dump(2) + "\n");
    });
  }

  size_t shown_notes = 0;
  Screen screen(run_dir, clock);
  Tensorboard tensorboard(run_dir, clock);
  dashboard::MetricsFollower alarms(run_dir);
  if (exists) (void)alarms.next();  // what an earlier attempt said
  const auto show_alarms = [&] {
    for (const Json& line : alarms.next()) {
      for (const Json& alarm : line.value("alarms", Json::array()))
        screen.note(rollout::alarm_line(static_cast<uint64_t>(dashboard::number_at(line, "step")), alarm));
    }
  };
  bool is_taken_over = false;
  while (supervisor.turn()) {
    if (const Status lost = claim->check(); !lost.ok()) supervisor.lose_directory(lost.message());
    if (const std::string taken = taken_over(launching, standby.get()); !taken.empty() && !is_taken_over) {
      is_taken_over = true;
      supervisor.lose_directory(taken);
    }
    if (disk.has_run_out()) {
      screen.note(disk.why().message());
      supervisor.interrupt({run::Supervision::Interrupted::By::kScheduler});
    }
    if (standby) {
      for (std::string& line : standby->news()) supervisor.note(std::move(line));
    }
    while (const auto interrupt = next_interrupt()) supervisor.interrupt(*interrupt);
    for (; shown_notes < supervisor.notes().size(); ++shown_notes) screen.note(supervisor.notes()[shown_notes]);
    screen.show(supervisor.report());
    show_alarms();
    tensorboard.follow();
  }
  for (; shown_notes < supervisor.notes().size(); ++shown_notes) screen.note(supervisor.notes()[shown_notes]);
  show_alarms();
  screen.wipe();
  run::leave_env_hosts(config, run_dir);
  floors_cancelled = true;
  if (floors.joinable()) floors.join();

  if (is_taken_over) {
    return fail(Status::unfit(supervisor.failure())
                    .at(run_dir.string())
                    .hint("it goes on there; what is here is of no more use to it"));
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
                   "With --take-over: also where the run went on without the copy");
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
