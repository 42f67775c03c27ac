// `tandem host`: lends this machine to runs that hold its key.
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/host_memory.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/run/run_listener_address.h"
#include "hosts/lender.h"
#include "hosts/reach.h"
#include "hosts/run_listener.h"
#include "kernels/stream.h"
#include "model/weight_format.h"
#include "run/layout.h"
#include "run/resume.h"
#include "run/tasks.h"
#include "wire/address.h"

namespace tandem::cli {

namespace {

struct HostOptions {
  std::string listen, join;
  fs::path key, store, make_key;
  double store_gb = 64, memory_gb = 0, drain_seconds = 90;
  uint32_t cores = 0;
  bool once = false;
};

std::atomic<int> host_interrupts{0};
std::atomic<bool> was_refused{false};

void interrupt_host(int) { ++host_interrupts; }

Result<wire::Secret> key_of(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path, error)) return wire::Secret::read(path);
  auto made = TRY(wire::Secret::create(path));
  fmt::print(stderr, "made the key {}; runs that are to use this host need a copy, as their run.key\n", path.string());
  return made;
}

// That the roles of a run can begin in its home here.
Status check_home(const fs::path& home) {
  const run::RunConfig config = TRY(run::read_resolved(home));
  TRY(run::RunLayout::open(home));
  if (!config.tasks.path.empty()) TRY(run::check_machine(config, TRY(run::read_recorded_tasks(config, home))));
  return {};
}

// Offers the machine to a run that is on, once it listens at `address`; ends the host where the run does not want it.
void offer(const std::string& listener, const std::string& address, const wire::Secret& secret) {
  constexpr double kSeconds = 10;
  if (const Status taken = hosts::ask_run(listener, secret, hosts::Join{address}, kSeconds); !taken) {
    fmt::print(stderr, "tandem host: --join: {}\n", taken.to_string());
    was_refused = true;
    host_interrupts = 2;
  }
}

Result<int> run_host_command(HostOptions options) {
  if (!options.make_key.empty()) {
    TRY(wire::Secret::create(options.make_key));
    return kDone;
  }
  if (options.key.empty()) return fail(Status::invalid("whose runs may use it? --key names the file of their key"));
  std::string listener;
  const bool has_key = [&] {
    std::error_code error;
    return fs::exists(options.key, error);
  }();
  if (!options.join.empty()) {
    if (!has_key) TRY(wire::Secret::read(options.key));  // a new key would be no run's
    listener = TRY(run_listener_address(options.join));
    const auto reached = TRY(hosts::reach(TRY(wire::Address::parse(listener)), 5));
    if (options.listen.empty()) options.listen = wire::Address::of_any_port(reached.own_ip).text();
  }
  if (options.listen.empty()) return fail(Status::invalid("where is it to listen? --listen says it, or --join"));
  if (auto address = wire::Address::parse_to_listen(options.listen); !address || address->host().empty()) {
    return fail(Status::invalid(fmt::format("\"{}\" is not an address to listen at", options.listen))
                    .at("--listen")
                    .hint("give tcp://ADDRESS:PORT; port * takes one that is free"));
  }
  const fs::path store = options.store.empty() ? TRY(hosts::usual_store()) : options.store;
  auto secret = TRY(key_of(options.key));
  hosts::LenderSettings settings{
      .address = options.listen,
      .secret = std::move(secret),
      .version = TANDEM_VERSION,
      .cores = options.cores > 0 ? options.cores : std::max(1u, std::thread::hardware_concurrency()),
      .memory_bytes =
          options.memory_gb > 0 ? static_cast<uint64_t>(options.memory_gb * (uint64_t{1} << 30)) : available_memory(),
      .once = options.once,
      .drain_seconds = options.drain_seconds,
      .store = fs::absolute(store).lexically_normal(),
      .key = fs::absolute(options.key).lexically_normal().string(),
      .numerics_id = [](const std::string& weights) -> Result<std::string> {
        TRY(model::weight_format_named(weights));
        return TRY(kernels::Stream::cpu(1)).numerics_id(weights);
      },
      .check_home = check_home};
  std::jthread offering;
  settings.on_address = [&](const std::string& address) {
    fmt::print(stderr, "host at {}: {} cores, {} of memory, for one run at a time that has the key\n", address,
               settings.cores, format_bytes(settings.memory_bytes));
    if (!listener.empty()) offering = std::jthread([&, address] { offer(listener, address, settings.secret); });
  };
  settings.say = [](const std::string& line) { spdlog::info("{}", line); };
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e host %l %v");
  std::signal(SIGTERM, interrupt_host);
  std::signal(SIGINT, interrupt_host);
  const SystemClock clock;
  TRY(hosts::lend(settings,
                  TRY(hosts::Store::open(store, static_cast<uint64_t>(options.store_gb * (uint64_t{1} << 30)))), clock,
                  host_interrupts));
  return was_refused ? kFailed : kDone;
}

}  // namespace

Action add_host(CLI::App& command) {
  auto options = std::make_shared<HostOptions>();
  command.add_option("--listen", options->listen, "Address for runs: tcp://ADDRESS:PORT (port * picks one)");
  command.add_option("--join", options->join,
                     "Offer it to a run that is on: its directory, or the address that the run has printed");
  command.add_option("--key", options->key, "File with the key that runs must have too; made where there is none");
  command.add_flag("--once", options->once, "End when the first run is over; for jobs of schedulers");
  command.add_option("--make-key", options->make_key, "Only make a key, in a new file of this name");
  command.add_option("--cores", options->cores, "Cores that runs may use; 0: all")->check(CLI::Range(0, 4096));
  command.add_option("--memory-gb", options->memory_gb, "GiB that runs may use; 0: what is available now")
      ->check(CLI::Range(0.0, 1e6));
  command.add_option("--store", options->store,
                     "Folder for files of runs (default: $XDG_CACHE_HOME/tandem/host, else ~/.cache/tandem/host)");
  command.add_option("--store-gb", options->store_gb, "Most GiB of files that are kept for later runs")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  command.add_option("--drain-seconds", options->drain_seconds, "Seconds for roles to end after the first interrupt")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command.footer(
      "SIGTERM drains it: the run moves its roles, then it ends with 0. A second one ends it at once.\n\n"
      "Examples:\n"
      "  tandem host --listen tcp://10.0.0.5:7070 --key ~/tandem.key\n"
      "  tandem run configs/tiny.yaml run.hosts=[tcp://10.0.0.5:7070] run.key=~/tandem.key\n"
      "  tandem host --join tcp://10.0.0.1:40123 --key ~/tandem.key");
  return [options]() -> Result<int> { return run_host_command(*options); };
}

}  // namespace tandem::cli
