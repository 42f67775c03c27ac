#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <csignal>
#include <thread>

#include "cli/command.h"
#include "cli/run_layout.h"
#include "cli/run_tasks.h"
#include "envs/fleet/watched_backend.h"
#include "envs/sandbox/backends.h"
#include "envs/sandbox/caching_backend.h"
#include "envs/sandbox/pool.h"
#include "envs/server.h"
#include "rollout/coordinator.h"
#include "rollout/peer.h"
#include "rollout/worker.h"
#include "trainer/trainer.h"

namespace tandem::cli {

namespace {

struct Options {
  std::string name;
  std::string run_dir;
  int rank = 0;
};

std::atomic<bool> stop_requested{false};

void on_signal(int) { stop_requested = true; }

int cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

Result<int> run(const Options& options) {
  std::signal(SIGTERM, on_signal);
  std::signal(SIGINT, SIG_IGN);  // the supervisor decides what an interrupt means
  const RunConfig config = TRY(read_resolved(options.run_dir));
  const RunLayout layout(options.run_dir);
  const SystemClock clock;
  const std::string sender = fmt::format("{}-{}", options.name, options.rank);
  const wire::Identity identity{
      .sender = sender, .epoch = static_cast<uint64_t>(clock.unix_seconds() * 1e6), .run = layout.run_id()};
  spdlog::set_pattern(fmt::format("%Y-%m-%d %H:%M:%S.%e {} %l %v", sender));

  if (options.name == "coordinator") {
    const rollout::RunPlan plan = TRY(plan_of(config, options.run_dir));
    TRY(rollout::run_coordinator({.run_dir = options.run_dir,
                                  .address = layout.address("coordinator"),
                                  .identity = identity,
                                  .plan = plan,
                                  .silence_seconds = config.run.silence_seconds,
                                  .episode_seconds = config.rollout.episode_seconds},
                                 clock, stop_requested));
    return kDone;
  }
  if (options.name == "trainer") {
    const auto& t = config.trainer;
    const auto format = TRY(model::weight_format_named(config.model.weights));
    const auto optimizer = TRY(optimizer_of(config));
    const auto algorithm = TRY(algorithm_of(config));
    TRY(trainer::run_trainer({.run_dir = options.run_dir,
                              .model = layout.model(),
                              .format = format,
                              .address = layout.address("trainer"),
                              .coordinator = layout.address("coordinator"),
                              .identity = identity,
                              .optimizer = optimizer,
                              .algorithm = algorithm,
                              .threads = t.threads > 0 ? t.threads : cores(),
                              .steps = config.run.steps,
                              .checkpoint_every = t.checkpoint_every},
                             clock, stop_requested));
    return kDone;
  }
  if (options.name == "rollout") {
    const auto& r = config.rollout;
    const auto format = TRY(model::weight_format_named(config.model.weights));
    const int threads = r.threads > 0 ? r.threads : std::max(1, cores() / r.workers);
    TRY(rollout::run_worker({.identity = identity,
                             .coordinator = layout.address("coordinator"),
                             .trainer = layout.address("trainer"),
                             .env = layout.address("env"),
                             .address = layout.address(sender),
                             .model = layout.model(),
                             .format = format,
                             .engine = {.slots = r.slots, .max_tokens = r.max_tokens},
                             .threads = threads,
                             .max_new_tokens = r.max_new_tokens},
                            clock, stop_requested));
    return kDone;
  }
  if (options.name == "env") {
    const auto backend = TRY(envs::start_sandboxes(options.run_dir, config.env.sandbox, config.env.engine));
    envs::ReadCache read_cache(static_cast<size_t>(config.env.read_cache_mb) << 20);
    envs::CachingBackend caching(*backend, read_cache);
    envs::WatchedBackend watched(caching, clock, identity.epoch);
    envs::SandboxPool pool(
        watched, clock, {},
        {.least = static_cast<size_t>(config.env.warm), .most = static_cast<size_t>(config.env.most_warm)});
    envs::MakeTask make_task = envs::make_task;
    if (!config.tasks.path.empty()) {
      const auto set = std::make_shared<const envs::TaskSet>(TRY(read_recorded_tasks(config, options.run_dir)));
      make_task = [set](const envs::TaskSpec& spec) { return set->task(spec); };
    }
    zmq::context_t context;
    rollout::CoordinatorLink link(TRY(wire::Socket::connect(context, layout.address("coordinator"), identity)), clock,
                                  [&](wire::Hello::Builder hello) {
                                    hello.setRole("env");
                                    hello.setName(sender);
                                    hello.setPid(::getpid());
                                  });
    const auto tools = TRY(envs::choose_tools(config.env.tools));
    const auto servers = TRY(envs::parse_mcp_servers(config.env.mcp_servers));
    const auto network = TRY(envs::AllowList::parse(config.env.network));
    bool told_to_stop = false;
    std::atomic<bool> stop{false};
    TRY(envs::serve({.address = layout.address("env"),
                     .identity = identity,
                     .threads = config.env.threads,
                     .make_task = make_task,
                     .episode = {.output_limit = static_cast<size_t>(config.env.output_bytes),
                                 .call_time_limit_s = config.env.call_seconds,
                                 .test_time_limit_s = config.env.call_seconds,
                                 .tools = tools,
                                 .network = network,
                                 .servers = servers},
                     .fleet = &watched,
                     .read_cache = &read_cache},
                    pool, clock, stop, [&](const std::string& doing, const envs::ServerCounters& c) {
                      while (auto message = link.receive()) told_to_stop = told_to_stop || message->body().isStop();
                      link.tick(doing, [&] {
                        const auto made = pool.counters();
                        const auto reads = read_cache.counters();
                        return Json{{"acquired", c.acquired},
                                    {"calls", c.calls},
                                    {"scored", c.scored},
                                    {"failed", c.failed},
                                    {"reaped", c.reaped},
                                    {"live", c.live},
                                    {"waiting", c.waiting},
                                    {"busy_seconds", c.busy_seconds},
                                    {"warm", made.ready},
                                    {"taken_warm", made.warm},
                                    {"made_on_demand", made.fresh},
                                    {"not_made", made.failed},
                                    {"warm_lost", made.lost},
                                    {"known_reads", reads.lookups},
                                    {"cached_reads", reads.hits},
                                    {"spawners", backend->spawners_started()},
                                    {"spawn_ms", made.last_fresh_milliseconds}};
                      });
                      if (told_to_stop || stop_requested) stop = true;
                    }));
    return kDone;
  }
  return fail(Status::invalid(
      fmt::format("\"{}\" is not a role; expected coordinator, trainer, rollout or env", options.name)));
}

}  // namespace

Action add_role(CLI::App& command) {
  auto options = std::make_shared<Options>();
  command.add_option("name", options->name, "coordinator, trainer, rollout or env")->required();
  command.add_option("--run-dir", options->run_dir, "The run it belongs to")->required()->check(CLI::ExistingDirectory);
  command.add_option("--rank", options->rank, "Number among the processes of this role")->check(CLI::Range(0, 100000));
  command.footer(
      "Started by `tandem run` and by cluster launchers; not by hand.\nExample:\n  tandem role rollout --run-dir "
      "runs/tiny-1 --rank 1");
  return [options]() -> Result<int> {
    const Result<int> outcome = run(*options);
    if (outcome || outcome.error().code() != Code::kCorrupt) return outcome;
    fmt::print(stderr, "tandem role: {}\n", outcome.error().to_string());
    return kDamaged;  // starting again would find the same
  };
}

}  // namespace tandem::cli
