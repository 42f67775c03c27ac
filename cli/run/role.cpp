// `tandem role`: one process of a run.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <csignal>
#include <thread>

#include "cli/command.h"
#include "cli/run/env_role.h"
#include "rollout/coordinator.h"
#include "rollout/relay.h"
#include "rollout/worker.h"
#include "run/checks.h"
#include "run/devices.h"
#include "run/env_hosts.h"
#include "run/relays.h"
#include "run/resume.h"
#include "run/rewards.h"
#include "run/standby.h"
#include "run/starts.h"
#include "run/teacher.h"
#include "trainer/follower.h"
#include "trainer/trainer.h"

namespace tandem::cli {

namespace {

constexpr int kMostRelayThreads = 8;  // memory, not arithmetic, bounds what they do

struct RoleOptions {
  std::string name;
  std::string run_dir;
  int rank = 0;
  uint64_t epoch = 0;
  EnvHostSettings host;
};

std::atomic<bool> role_stop_requested{false};
std::atomic<int> interrupts{0};

void request_role_stop(int) {
  role_stop_requested = true;
  ++interrupts;
}

int cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

Result<int> run_host(const RoleOptions& options) {
  if (options.name != "env") return fail(Status::invalid("--listen is for `tandem role env`"));
  if (!options.run_dir.empty())
    return fail(Status::invalid("--listen and --run-dir exclude each other: a host serves every run"));
  if (auto address = wire::Address::parse_to_listen(options.host.address); !address)
    return fail(std::move(address).error().at("--listen"));
  std::signal(SIGTERM, request_role_stop);
  std::signal(SIGINT, request_role_stop);
  TRY(run_env_host(options.host, interrupts));
  return kDone;
}

Result<int> run_role(const RoleOptions& options) {
  if (!options.host.address.empty()) return run_host(options);
  if (options.run_dir.empty()) return fail(Status::invalid("which run? --run-dir says it"));
  std::signal(SIGTERM, request_role_stop);
  std::signal(SIGINT, SIG_IGN);      // the supervisor decides what an interrupt means
  std::signal(SIGUSR1, [](int) {});  // and a scheduler's notice, which may go to all; no program inherits a handler
  const run::RunConfig config = TRY(run::read_resolved(options.run_dir));
  const auto layout = TRY(run::RunLayout::open(options.run_dir));
  const SystemClock clock;
  const wire::Peer self{TRY(wire::role_named(options.name)), options.rank};
  const run::Topology topology = TRY(run::topology_of(config));
  if (const auto* place = topology.find(self); place != nullptr && place->found_at) {
    return fail(Status::invalid(fmt::format("{} of this run is at {}", to_string(self), place->found_at->text()))
                    .hint("choose a rank that no entry of env.hosts has; they count from 0"));
  }
  const FileDescriptor claim = TRY(run::claim_role(layout, self));
  const auto epoch = options.epoch > 0 ? options.epoch : TRY(run::count_start(options.run_dir, self, clock));
  const auto faults = TRY(wire::Faults::of_environment());
  const wire::Identity identity{.sender = to_string(self), .epoch = epoch, .run = layout.run_id(), .faults = faults};
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is a write that fails
  spdlog::set_pattern(fmt::format("%Y-%m-%d %H:%M:%S.%e {} %l %v", identity.sender));
  const auto lines = TRY(run::Lines::of(layout));
  const std::string own_address = lines.listening(self);
  const std::string coordinator_address = lines.coordinator().text();
  std::optional<wire::Secret> secret;
  if (lines.secret() != nullptr) secret = *lines.secret();
  auto directory = TRY(run::directory_of(topology, lines));
  if (const auto known = lines.known(self))
    TRY(directory.put(self, {.address = *known, .host = lines.host(), .epoch = identity.epoch}));

  const fs::path turns = layout.socket_folder() / "device-turns";
  const auto standby = TRY(run::replicator_of(config, layout, options.run_dir, self, identity.epoch));
  if (self.role == wire::Role::kCoordinator) {
    const auto judge = TRY(run::group_judge_of_run(config, options.run_dir));
    TRY(rollout::run_coordinator({.run_dir = options.run_dir,
                                  .address = own_address,
                                  .identity = identity,
                                  .directory = directory,
                                  .secret = secret,
                                  .silence_seconds = config.run.silence_seconds,
                                  .episode_seconds = config.rollout.episode_seconds,
                                  .judging = {.judge = judge,
                                              .threads = config.reward.own.concurrency,
                                              .rivals = config.reward.own.judge.rivals,
                                              .retries = config.reward.own.retries,
                                              .price = config.reward.own.judge.price},
                                  .alarms_off = run::alarms_off_of(config),
                                  .standby = standby.get(),
                                  .epoch = layout.epoch(),
                                  .most_unscored = static_cast<uint64_t>(config.run.unscored_steps) *
                                                   static_cast<uint64_t>(config.trainer.groups_per_step) *
                                                   static_cast<uint64_t>(config.trainer.group_size)},
                                 clock, role_stop_requested));
    return kDone;
  }
  if (self.role == wire::Role::kTrainer) {
    const auto& t = config.trainer;
    const auto format = TRY(model::weight_format_named(config.model.weights));
    const auto optimizer = TRY(run::optimizer_of(config));
    const auto algorithm = TRY(run::algorithm_of(config));
    const fs::path ranks_folder = layout.socket_folder() / "ranks";
    if (t.ranks > 1) TRY(make_private_folder(ranks_folder));
    const auto teacher_key = self.rank == 0 ? TRY(run::teacher_key(config)) : "";
    const auto kept_checkpoints = TRY(run::kept_checkpoints(config));
    const auto devices = TRY(run::devices_of(config));
    const trainer::TrainerSettings settings{
        .run_dir = options.run_dir,
        .model = layout.model(),
        .format = format,
        .address = own_address,
        .coordinator = coordinator_address,
        .identity = identity,
        .secret = secret,
        .team = {.folder = ranks_folder, .rank = self.rank, .ranks = t.ranks},
        .optimizer = optimizer,
        .algorithm = algorithm,
        .teacher = algorithm.teacher.path.empty() ? fs::path() : layout.teacher(),
        .teacher_key = teacher_key,
        .place = {.device = devices.trainer, .threads = t.threads > 0 ? t.threads : std::max(1, cores() / t.ranks)},
        .turns = config.rollout.sleep_while_training ? turns : fs::path(),
        .steps = config.run.steps,
        .checkpoint_every = t.checkpoint_every,
        .measured_every = config.tasks.heldout > 0 ? config.tasks.heldout_every : 0,
        .kept_checkpoints = kept_checkpoints,
        .audit_every = t.audit_every,
        .weights = {.deltas = t.weight_deltas},
        .weight_store = t.weight_store,
        .standby = standby.get()};
    TRY(self.rank == 0 ? trainer::run_trainer(settings, clock, role_stop_requested)
                       : trainer::run_follower(settings, clock, role_stop_requested));
    return kDone;
  }
  if (self.role == wire::Role::kRollout) {
    const auto& r = config.rollout;
    const auto format = TRY(model::weight_format_named(config.model.weights));
    const int threads = r.threads > 0
                            ? r.threads
                            : std::max(1, cores() / std::max(1, topology.count(wire::Role::kRollout, lines.host())));
    const auto deadlines = TRY(run::env_deadlines_of(config));
    const auto profile = TRY(envs::profile_of_model(options.run_dir, TRY(run::profile_of(config))));
    const auto devices = TRY(run::devices_of(config));
    const auto env_secret = secret ? secret : TRY(run::env_secret(config));
    const auto speculation = TRY(rollout::speculation_named(r.speculation));
    const auto on_new_version = TRY(rollout::on_new_version_named(r.on_new_version));
    TRY(rollout::run_worker({.identity = identity,
                             .directory = directory,
                             .secret = secret,
                             .env_secret = env_secret,
                             .run_dir = fs::absolute(options.run_dir).lexically_normal().string(),
                             .address = own_address,
                             .host = lines.is_between_machines() ? lines.host() : "",
                             .model = layout.model(),
                             .format = format,
                             .engine = {.slots = r.slots,
                                        .max_tokens = r.max_tokens,
                                        .speculation = speculation,
                                        .on_new_version = on_new_version,
                                        .record_routes = config.trainer.replay_routes},
                             .conversation = run::conversation_settings(config),
                             .place = {.device = devices.rollout(self.rank), .threads = threads},
                             .turns = r.sleep_while_training && devices.is_shared(self.rank) ? turns : fs::path(),
                             .max_new_tokens = r.max_new_tokens,
                             .compaction = profile.compaction,
                             .hint = run::hint_settings(config),
                             .weight_store = config.trainer.weight_store,
                             .weight_deltas = config.trainer.weight_deltas,
                             .relay = run::relay_above(topology, config.run.relay_fanout, self, lines.host()),
                             .relay_seconds = config.run.relay_seconds,
                             .request_seconds = deadlines.request,
                             .grade_seconds = deadlines.grade,
                             .seconds_of_kind = deadlines.of_kind},
                            clock, role_stop_requested));
    return kDone;
  }
  if (self.role == wire::Role::kRelay) {
    const auto format = TRY(model::weight_format_named(config.model.weights));
    TRY(rollout::run_relay({.identity = identity,
                            .directory = directory,
                            .secret = secret,
                            .address = own_address,
                            .host = lines.is_between_machines() ? lines.host() : "",
                            .model = layout.model(),
                            .format = format,
                            .weights = {.deltas = config.trainer.weight_deltas},
                            .above = run::relay_above(topology, config.run.relay_fanout, self, lines.host()),
                            .above_seconds = config.run.relay_seconds,
                            .threads = std::clamp(cores() / 2, 1, kMostRelayThreads)},
                           clock, role_stop_requested));
    return kDone;
  }
  if (self.role == wire::Role::kEnv) {
    TRY(run_env_role(options.run_dir, config, self, identity, interrupts));
    return kDone;
  }
  return fail(Status::invalid("the supervisor is `tandem run`, and no role of its own"));
}

}  // namespace

Action add_role(CLI::App& command) {
  auto options = std::make_shared<RoleOptions>();
  command.add_option("name", options->name, "coordinator, trainer, rollout, relay or env")->required();
  command.add_option("--run-dir", options->run_dir, "The run it belongs to")->check(CLI::ExistingDirectory);
  command.add_option("--rank", options->rank, "Number among the processes of this role")
      ->check(CLI::Range(0, wire::kMaxRank));
  command.add_option("--epoch", options->epoch, "Number of this start of the role; 0: the next");
  constexpr const char* kHost = "A host of environments";
  EnvHostSettings& host = options->host;
  command.add_option("--listen", host.address, "Serve environments to every run: tcp://HOST:PORT (* picks a port)")
      ->group(kHost);
  command.add_option("--key", host.key, "File with the key that runs must have too; made where there is none")
      ->group(kHost);
  command.add_option("--threads", host.threads, "Tool calls that run at once; 0: four a core")
      ->check(CLI::Range(0, 4096))
      ->group(kHost);
  command.add_option("--episodes", host.most_episodes, "Episodes at once")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str()
      ->group(kHost);
  command.add_option("--episodes-of-a-run", host.most_episodes_of_a_run, "Episodes of one run at once; 0: no limit")
      ->check(CLI::Range(0, 100'000))
      ->capture_default_str()
      ->group(kHost);
  command.add_option("--warm", host.warm, "Least number of warm sandboxes")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str()
      ->group(kHost);
  command.add_option("--most-warm", host.most_warm, "Largest number of warm sandboxes")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str()
      ->group(kHost);
  command.add_option("--read-cache-mb", host.read_cache_mb, "Memory of the cache for outcomes of read-only calls")
      ->check(CLI::Range(0, 65536))
      ->capture_default_str()
      ->group(kHost);
  command
      .add_option("--beginnings-mb", host.beginnings_mb,
                  "Memory for prepared snapshots of tasks with many files or a setup")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str()
      ->group(kHost);
  command.add_option("--drain-seconds", host.drain_seconds, "Seconds for episodes to end after the first interrupt")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str()
      ->group(kHost);
  command.footer(
      "Roles of a run are started by `tandem run` and by cluster launchers. A host of environments is started by hand "
      "or\n"
      "by a service manager, once a machine; runs name it in env.hosts, and must lie on a file system that both "
      "see.\n\n"
      "Examples:\n"
      "  tandem role rollout --run-dir runs/tiny-1 --rank 1\n"
      "  tandem role env --listen tcp://10.0.0.5:7070 --key ~/tandem.key");
  return [options]() -> Result<int> {
    const Result<int> outcome = run_role(*options);
    if (outcome || outcome.error().code() != Code::kCorrupt) return outcome;
    fmt::print(stderr, "tandem role: {}\n", outcome.error().to_string());
    return kDamaged;  // starting again would find the same
  };
}

}  // namespace tandem::cli
