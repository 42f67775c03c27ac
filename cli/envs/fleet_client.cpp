#include "cli/envs/fleet_client.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "base/json.h"
#include "dashboard/run_files.h"
#include "run/env_hosts.h"
#include "wire/ask.h"

namespace tandem::cli {

using namespace std::chrono_literals;

namespace {

constexpr std::string_view kIpc = "ipc://";

// Whether a process listens on a socket of this machine. One that was killed leaves the file behind.
bool has_listener(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return true;  // who asks will see
  std::memcpy(address.sun_path, path.data(), path.size());
  const FileDescriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN;
}

// How the run stands, by what its supervisor wrote last.
std::string state_of(const fs::path& run_dir) {
  const auto text = read_file(run_dir / "status.json", 1 << 20);
  const auto status = text ? parse_json(*text) : Result<Json>(Json());
  if (!status || !status->is_object()) return "the run has not begun";
  const auto found = status->find("state");
  const std::string state = found != status->end() && found->is_string() ? found->get<std::string>() : "";
  if (state == "done" || state == "failed") return fmt::format("the run is over ({})", state);
  return "the run was killed, or its server is just starting again";
}

// Waits until the run's own server listens: a run that is on starts one again that was killed; one that is not has no
// folder of sockets.
Status await_local(const std::string& address, const FleetTarget& target, const run::RunLayout& layout) {
  const SystemClock clock;
  const auto path = address.substr(kIpc.size());
  std::error_code error;
  const Time deadline = clock.now() + from_seconds(target.patience);
  while (!has_listener(path)) {
    if (!fs::exists(layout.socket_folder(), error) || clock.now() > deadline) {
      return Status::unavailable(
          fmt::format("no environment server of {} is alive: {}", target.run, state_of(target.run)));
    }
    ::usleep(20'000);
  }
  return {};
}

// Where the servers of a run are.
Result<std::vector<rollout::EnvAddress>> servers_of(const FleetTarget& target) {
  TRY(dashboard::check_run_directory(target.run));
  const run::RunLayout layout(target.run);
  auto config = TRY(run::read_resolved(target.run));
  if (!target.key.empty()) config.env.key = target.key;
  auto addresses = TRY(run::env_addresses(config, layout));
  if (run::has_local_env(config)) TRY(await_local(layout.address("env"), target, layout));
  return addresses;
}

Result<std::vector<rollout::EnvAddress>> servers_at(const FleetTarget& target) {
  std::optional<wire::Secret> secret;
  if (!target.key.empty()) secret = TRY(wire::Secret::read(target.key));
  std::vector<rollout::EnvAddress> addresses;
  for (const auto& endpoint : target.endpoints) {
    if (Status status = run::check_env_address(endpoint); !status) return fail(std::move(status).at("--endpoint"));
    addresses.push_back({endpoint, endpoint.starts_with(kIpc) ? std::nullopt : secret});
  }
  return addresses;
}

}  // namespace

Result<envs::FleetAnswer> FleetLine::ask(const envs::FleetQuery& query, double seconds,
                                         const Interrupted& interrupted) {
  const auto write = [&](wire::Body::Builder body) { envs::write_query(query, body.initFleetQuery()); };
  auto answer = wire::ask(socket_, ++last_id_, write, seconds, interrupted);
  if (!answer) {
    if (answer.error().code() != Code::kDeadline) return fail(std::move(answer).error());
    return fail(std::move(answer).error().hint("is it a server of this run? those of others do not answer"));
  }
  name_ = answer->sender();
  epoch_ = answer->epoch();
  if (!answer->body().isFleetAnswer())
    return fail(Status::corrupt(endpoint_ + " answered something else than was asked"));
  return envs::read_answer(answer->body().getFleetAnswer());
}

Result<FleetClient> FleetClient::open(const FleetTarget& target) {
  if (target.run.empty() && target.endpoints.empty())
    return fail(Status::invalid("whose sandboxes?").hint("give a run directory, or --endpoint of a host"));
  if (!target.run.empty()) TRY(dashboard::check_run_directory(target.run));
  const auto servers = TRY(target.endpoints.empty() ? servers_of(target) : servers_at(target));
  FleetClient client(std::make_unique<zmq::context_t>(), target.patience);
  const auto epoch = wire::new_epoch(SystemClock());
  const wire::Identity identity{.sender = fmt::format("operator-{}-{:x}", ::getpid(), epoch),
                                .epoch = epoch,
                                .run = target.run.empty() ? wire::kEveryRun : run::RunLayout(target.run).run_id()};
  for (const auto& [address, secret] : servers) {
    auto socket = TRY(wire::Socket::connect(*client.context_, address, identity, secret ? &*secret : nullptr));
    client.lines_.emplace_back(std::move(socket), address);
  }
  return client;
}

Result<std::vector<envs::SandboxRow>> FleetClient::rows(FleetLine& line, const Interrupted& interrupted) const {
  std::vector<envs::SandboxRow> rows;
  for (;;) {
    const envs::RowsQuery query{.after = rows.empty() ? 0 : rows.back().number, .most = envs::kMostRows};
    auto page = TRY(line.ask_for<envs::RowsPage>(query, patience_, interrupted));
    const bool is_last = page.rows.size() < envs::kMostRows;
    for (auto& row : page.rows) {
      if (row.number <= query.after) return fail(Status::corrupt(line.endpoint() + " sent its sandboxes out of order"));
      rows.push_back(std::move(row));
    }
    if (is_last) return rows;
  }
}

}  // namespace tandem::cli
