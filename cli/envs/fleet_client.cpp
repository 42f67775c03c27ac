#include "cli/envs/fleet_client.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "base/json.h"
#include "base/unique_number.h"
#include "dashboard/run_files.h"
#include "run/env_hosts.h"
#include "run/resume.h"
#include "wire/ask.h"

namespace tandem::cli {

using namespace std::chrono_literals;

namespace {

// Whether a process listens on a socket of this machine. One that was killed leaves the file behind.
bool has_listener(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return true;  // who asks will see
  std::memcpy(address.sun_path, path.data(), path.size());
  const FileDescriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN;
}

wire::Identity operator_identity(uint64_t run) {
  const uint64_t life = unique_number();
  return {.sender = fmt::format("operator-{:x}", life), .epoch = life, .run = run};
}

// How the run stands, by what its supervisor wrote last.
std::string state_of(const fs::path& run_dir) {
  const auto status = dashboard::read_status(run_dir);
  if (!status) return status.error().to_string();
  if (status->empty()) return "the run has not begun";
  const auto found = status->find("state");
  const std::string state = found != status->end() && found->is_string() ? found->get<std::string>() : "";
  if (const auto end = status->find("end"); end != status->end() && *end == "interrupted")
    return "the run was interrupted; `tandem run --resume` goes on with it";
  if (state == "done" || state == "failed") return fmt::format("the run is over ({})", state);
  return "the run was killed, or its server is just starting again";
}

Status no_server(const std::string& run_dir) {
  return Status::unavailable(fmt::format("no environment server of {} is alive: {}", run_dir, state_of(run_dir)));
}

// Waits until the run's own server listens: a run that is on starts one again that was killed; one that is not has no
// folder of sockets.
Status await_local(const wire::Address& address, const FleetTarget& target, const run::RunLayout& layout) {
  const SystemClock clock;
  std::error_code error;
  const Time deadline = clock.now() + from_seconds(target.patience);
  while (!has_listener(address.path())) {
    if (!fs::exists(layout.socket_folder(), error) || clock.now() > deadline) return no_server(target.run);
    ::usleep(20'000);
  }
  return {};
}

struct Servers {
  std::vector<wire::Address> addresses;
  std::optional<wire::Secret> secret;
};

// Where everybody is now, by the coordinator of a run that is on; where it does not answer, by the run's config.
wire::Directory directory_now(const run::RunLayout& layout, const run::Lines& lines, const wire::Directory& of_config) {
  const wire::Address address = lines.coordinator();
  if (!lines.is_between_machines() && !has_listener(address.path())) return of_config;
  zmq::context_t context;
  auto socket = wire::Socket::connect(context, address.text(), operator_identity(layout.run_id()), lines.secret());
  if (!socket) return of_config;
  constexpr double kSeconds = 1;
  const auto answer = wire::ask(
      *socket, 1, [](wire::Body::Builder body) { body.initHello(); }, kSeconds);
  if (!answer || !answer->body().isPeers()) return of_config;
  return wire::Directory::read(answer->body().getPeers()).value_or(of_config);
}

// Where the servers of a run are.
Result<Servers> servers_of(const FleetTarget& target) {
  TRY(dashboard::check_run_directory(target.run));
  auto config = TRY(run::read_resolved(target.run));
  const auto layout = run::RunLayout::open(target.run);
  if (!layout && layout.error().code() == Code::kNotFound) return fail(no_server(target.run));
  if (!layout) return fail(layout.error());
  if (!target.key.empty()) config.env.key = target.key;
  const auto lines = TRY(run::Lines::of(*layout));
  Servers servers;
  servers.secret = TRY(run::env_secret(config));
  if (lines.secret() != nullptr) servers.secret = *lines.secret();
  const run::Topology topology = TRY(run::topology_of(config));
  for (const run::Place& place : topology.places) {
    if (place.peer.role == wire::Role::kEnv && !place.found_at && !lines.is_between_machines())
      TRY(await_local(layout->address(place.peer), target, *layout));
  }
  const auto directory = directory_now(*layout, lines, TRY(run::directory_of(topology, lines)));
  for (const wire::Peer& peer : directory.all(wire::Role::kEnv))
    servers.addresses.push_back(directory.find(peer)->address);
  if (servers.addresses.empty()) return fail(no_server(target.run));
  return servers;
}

Result<Servers> servers_at(const FleetTarget& target) {
  Servers servers;
  if (!target.key.empty()) servers.secret = TRY(wire::Secret::read(target.key));
  for (const auto& endpoint : target.endpoints) {
    auto address = wire::Address::parse(endpoint);
    if (!address) return fail(std::move(address).error().at("--endpoint"));
    servers.addresses.push_back(std::move(*address));
  }
  return servers;
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
  const wire::Identity identity =
      operator_identity(target.run.empty() ? wire::kEveryRun : TRY(run::RunLayout::open(target.run)).run_id());
  for (const wire::Address& address : servers.addresses) {
    auto socket = TRY(
        wire::Socket::connect(*client.context_, address.text(), identity, servers.secret ? &*servers.secret : nullptr));
    client.lines_.emplace_back(std::move(socket), address.text());
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
