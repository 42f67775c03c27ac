#include "cli/run/env_role.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <thread>

#include "base/digest.h"
#include "base/unique_number.h"
#include "envs/backends/backends.h"
#include "envs/fleet/pressure.h"
#include "envs/fleet/watched_backend.h"
#include "envs/sandbox/caching_backend.h"
#include "envs/sandbox/pool.h"
#include "envs/search/searching_backend.h"
#include "run/packages.h"
#include "run/resume.h"
#include "run/rewards.h"
#include "run/search.h"
#include "run/tasks.h"
#include "run/topology.h"
#include "wire/coordinator_link.h"

namespace tandem::cli {
namespace {

// How long a run's own server that is told to end waits for its episodes, and for the coordinator to let it go.
constexpr auto kDrain = std::chrono::seconds(60);
constexpr auto kLookForSocket = std::chrono::seconds(1);
constexpr auto kLetGo = std::chrono::milliseconds(1000), kLeaveAgain = std::chrono::milliseconds(200);

// What sandboxes of a server go through: made by the back end, read from a cache, watched, kept ready.
struct Sandboxes {
  struct Settings {
    std::string label, kind, engine;  // see start_sandboxes
    size_t read_cache_mb = 0, beginnings_mb = 0, warm = 0, most_warm = 0;
    std::unique_ptr<envs::CodeSearcher> searcher = {};  // null: no codebase_search
  };
  static Result<std::unique_ptr<Sandboxes>> start(Settings settings, const Clock& clock, uint64_t life) {
    auto backend = TRY(envs::start_sandboxes(settings.label, settings.kind, settings.engine));
    return std::unique_ptr<Sandboxes>(new Sandboxes(std::move(backend), std::move(settings), clock, life));
  }

  std::unique_ptr<envs::SandboxBackend> backend;
  envs::ReadCache read_cache;
  envs::CachingBackend caching;
  std::unique_ptr<envs::CodeSearcher> searcher;
  std::optional<envs::SnapshotIndexes> snapshots;  // there with the searcher
  std::optional<envs::SearchingBackend> searching;
  envs::WatchedBackend watched;
  envs::SandboxPool pool;
  envs::PreparedSnapshots* prepared() { return prepared_ ? &*prepared_ : nullptr; }

 private:
  Sandboxes(std::unique_ptr<envs::SandboxBackend> made, Settings settings, const Clock& clock, uint64_t life)
      : backend(std::move(made)),
        read_cache(settings.read_cache_mb << 20),
        caching(*backend, read_cache),
        searcher(std::move(settings.searcher)),
        watched(with_search(), clock, life),
        pool(watched, clock, {}, {.least = settings.warm, .most = settings.most_warm}) {
    if (settings.beginnings_mb > 0) prepared_.emplace(uint64_t{settings.beginnings_mb} << 20);
  }

  envs::SandboxBackend& with_search() {
    if (!searcher) return caching;
    snapshots.emplace(*searcher);
    return searching.emplace(caching, *searcher, *snapshots);
  }

  std::optional<envs::PreparedSnapshots> prepared_;
};

Json metrics_of(const envs::ServerCounters& c, Sandboxes& sandboxes, const envs::Rewards* rewards) {
  const auto made = sandboxes.pool.counters();
  const auto reads = sandboxes.read_cache.counters();
  Json metrics = {{"acquired", c.acquired},
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
                  {"spawners", sandboxes.backend->spawners_started()},
                  {"spawn_ms", made.last_fresh_milliseconds}};
  if (const auto* prepared = sandboxes.prepared()) {
    const auto counters = prepared->counters();
    metrics["beginnings_made"] = counters.made;
    metrics["begun"] = counters.begun;
    metrics["beginnings_mb"] = static_cast<double>(counters.bytes) / (1 << 20);
  }
  if (sandboxes.searcher) {
    metrics["search_embedded"] = sandboxes.searcher->computed();
    metrics["search_snapshots"] = sandboxes.snapshots->kept();
  }
  if (rewards != nullptr) {
    const auto counters = rewards->counters();
    metrics["reward_asked"] = counters.asked;
    metrics["reward_answered"] = counters.answered;
    metrics["reward_cached"] = counters.cached;
    metrics["reward_failed"] = counters.failed;
    metrics["reward_seconds"] = counters.seconds;
  }
  if (const auto pressure = envs::read_pressure()) {
    metrics["cpu_pressure"] = pressure->cpu;
    metrics["memory_pressure"] = pressure->memory;
    metrics["io_pressure"] = pressure->io;
  }
  return metrics;
}

Result<envs::RunTerms> terms_of(const run::RunConfig& config, const fs::path& run_dir, const Clock& clock) {
  const auto profile = TRY(envs::profile_of_model(run_dir, TRY(run::profile_of(config))));
  auto network = TRY(envs::AllowList::parse(config.env.network));
  auto servers = TRY(envs::parse_mcp_servers(config.env.mcp_servers));
  envs::RunTerms terms{.name = run::name_of_run(run_dir),
                       .episode = {.output_limit = static_cast<size_t>(profile.output_bytes),
                                   .call_time_limit_s = profile.call_seconds,
                                   .test_time_limit_s = profile.call_seconds,
                                   .tools = profile.tools,
                                   .system = profile.system,
                                   .network = std::move(network),
                                   .servers = std::move(servers),
                                   .count_lints = config.reward.lints != 0,
                                   .freeze_between_turns = config.env.freeze_between_turns}};
  if (const double seconds = run::grade_seconds_of(config); seconds > 0) terms.episode.most_test_seconds = seconds;
  terms.episode.packages = TRY(run::packages_of_run(config, run_dir));
  terms.rewards = TRY(run::rewards_of_run(config, run_dir, clock));
  terms.foreign = TRY(run::foreign_environments_of(config));
  if (!config.tasks.path.empty()) {
    const auto set = std::make_shared<const envs::TaskSet>(TRY(run::read_recorded_tasks(config, run_dir)));
    terms.make_task = [set](const envs::TaskSpec& spec) { return set->task(spec); };
  }
  return terms;
}

Result<envs::RunTerms> open_run(uint64_t run, const std::string& run_dir, const Clock& clock) {
  constexpr size_t kLongestPath = 4096;
  if (run_dir.empty() || run_dir.size() > kLongestPath || !fs::path(run_dir).is_absolute())
    return fail(Status::invalid("a run must say its directory, as an absolute path"));
  std::error_code error;
  if (!fs::exists(fs::path(run_dir) / "config.resolved.json", error)) {
    return fail(Status::not_found(fmt::format("{} cannot be seen on this host", run_dir))
                    .hint("runs and hosts need a file system that they share, at the same path"));
  }
  if (TRY(run::RunLayout::open(run_dir)).run_id() != run)
    return fail(Status::invalid("the run is not the one of " + run_dir));
  return terms_of(TRY(run::read_resolved(run_dir)), run_dir, clock);
}

// Names of sandboxes are told apart by it: no other server of this run or another has the same, and no other life.
uint64_t life_of(const wire::Identity& identity) {
  return digest_of(fmt::format("{:016x}/{}/{}", identity.run, identity.sender, identity.epoch)).low;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace

Status run_env_role(const fs::path& run_dir, const run::RunConfig& config, const wire::Peer& self,
                    const wire::Identity& identity, const std::atomic<int>& interrupts) {
  const SystemClock clock;
  const auto layout = TRY(run::RunLayout::open(run_dir));
  const auto lines = TRY(run::Lines::of(layout));
  std::unique_ptr<envs::CodeSearcher> searcher;
  if (const auto encoder = TRY(run::encoder_of(config)))
    searcher = TRY(run::searcher_of_run(*encoder, run_dir, config.env.encoder_threads));
  const auto sandboxes = TRY(Sandboxes::start({.label = run_dir.string(),
                                               .kind = config.env.sandbox,
                                               .engine = config.env.engine,
                                               .read_cache_mb = static_cast<size_t>(config.env.read_cache_mb),
                                               .beginnings_mb = static_cast<size_t>(config.env.beginnings_mb),
                                               .warm = static_cast<size_t>(config.env.warm),
                                               .most_warm = static_cast<size_t>(config.env.most_warm),
                                               .searcher = std::move(searcher)},
                                              clock, life_of(identity)));
  auto terms = TRY(terms_of(config, run_dir, clock));
  terms.episode.prepared = sandboxes->prepared();
  const auto rewards = terms.rewards;
  zmq::context_t context;
  std::string address;  // where rollouts reach it, once it listens
  wire::CoordinatorLink link(TRY(wire::Socket::connect(context, lines.coordinator().text(), identity, lines.secret())),
                             clock, [&](wire::Hello::Builder hello) {
                               hello.setRole("env");
                               hello.setName(identity.sender);
                               hello.setPid(::getpid());
                               hello.setAddress(address);
                               hello.setHost(lines.host());
                             });
  envs::StopFlags flags;
  std::optional<Time> leaving_since;
  Time next_leave{}, next_look{};
  const auto tick = [&](const std::string& doing, const envs::ServerCounters& counters) {
    while (auto message = link.receive()) {
      if (message->body().isStop()) flags.now = true;
      if (message->body().isPeers()) flags.drain = true;  // it is not listed any more
    }
    link.tick(doing, [&] { return metrics_of(counters, *sandboxes, rewards.get()); });
    const Time now = clock.now();
    // Who ends a run sweeps its sockets; a server that joined it by itself hears no more than that.
    if (now >= next_look && !flags.now) {
      next_look = now + kLookForSocket;
      std::error_code error;
      const fs::path folder = layout.socket_folder();
      if (!fs::exists(lines.is_between_machines() ? folder : folder / to_string(self), error)) {
        spdlog::info("the run has ended");
        flags.now = true;
      }
    }
    if (interrupts == 0) return;
    if (!leaving_since) leaving_since = now;
    const Duration passed = now - *leaving_since;
    if (interrupts > 1 || passed > kDrain || (passed > kLetGo && !flags.drain)) flags.now = true;
    if (now < next_leave) return;
    next_leave = now + kLeaveAgain;  // a coordinator that has started anew lists it again
    wire::Outgoing message;
    message.body().setLeave();
    (void)link.send(message);
  };
  return envs::serve({.address = lines.listening(self),
                      .identity = identity,
                      .threads = config.env.threads,
                      .score_threads = config.reward.own.concurrency,
                      .make_task = std::move(terms.make_task),
                      .episode = std::move(terms.episode),
                      .rewards = rewards,
                      .foreign = std::move(terms.foreign),
                      .fleet = &sandboxes->watched,
                      .read_cache = &sandboxes->read_cache,
                      .secret = lines.secret()},
                     sandboxes->pool, clock, flags, tick, [&](const std::string& at) { address = at; });
}

Status run_env_host(const EnvHostSettings& settings, const std::atomic<int>& interrupts) {
  const SystemClock clock;
  std::optional<wire::Secret> secret;
  if (!settings.key.empty()) {
    std::error_code error;
    const bool exists = fs::exists(settings.key, error);
    secret = TRY(exists ? wire::Secret::read(settings.key) : wire::Secret::create(settings.key));
    if (!exists)
      fmt::print(stderr, "made the key {}; runs that are to use this host need a copy, as their env.key\n",
                 settings.key.string());
  }
  const wire::Identity identity{.sender = "env@" + host_name(), .epoch = unique_number(), .run = wire::kEveryRun};
  const auto sandboxes = TRY(Sandboxes::start({.label = settings.address,
                                               .kind = "",
                                               .engine = "",
                                               .read_cache_mb = settings.read_cache_mb,
                                               .beginnings_mb = settings.beginnings_mb,
                                               .warm = settings.warm,
                                               .most_warm = settings.most_warm},
                                              clock, life_of(identity)));
  const auto cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  envs::StopFlags flags;
  std::optional<Time> drain_until;
  const auto tick = [&](const std::string&, const envs::ServerCounters& counters) {
    if (interrupts == 0) return;
    const Time now = clock.now();
    if (!drain_until) {
      drain_until = now + from_seconds(settings.drain_seconds);
      fmt::print(stderr, "draining: no new episodes, {} are left; interrupt again to end at once\n", counters.live);
    }
    flags.drain = true;
    flags.now = interrupts > 1 || now > *drain_until;
  };
  const auto on_address = [&](const std::string& address) {
    fmt::print(stderr, "environment host at {}: {} episodes at most, for any run with the key\n", address,
               settings.most_episodes);
  };
  return envs::serve(
      {.address = settings.address,
       .identity = identity,
       .threads = settings.threads > 0 ? settings.threads : 4 * cores,
       .fleet = &sandboxes->watched,
       .read_cache = &sandboxes->read_cache,
       .open_run = [&](uint64_t run, const std::string& run_dir) -> Result<envs::RunTerms> {
         auto terms = TRY(open_run(run, run_dir, clock));
         terms.episode.prepared = sandboxes->prepared();
         return terms;
       },
       .secret = secret ? &*secret : nullptr,
       .most_episodes = settings.most_episodes,
       .most_episodes_of_a_run = settings.most_episodes_of_a_run > 0 ? settings.most_episodes_of_a_run : SIZE_MAX},
      sandboxes->pool, clock, flags, tick, on_address);
}

}  // namespace tandem::cli
