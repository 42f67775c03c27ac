#include "cli/fleet_client.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "base/json.h"
#include "cli/run_layout.h"
#include "dashboard/run_files.h"

namespace tandem::cli {

using namespace std::chrono_literals;

namespace {

constexpr std::string_view kIpc = "ipc://", kTcp = "tcp://";

Status check_endpoint(const std::string& endpoint) {
  const auto colon = endpoint.rfind(':');
  const auto port = colon == std::string::npos ? "" : endpoint.substr(colon + 1);
  const bool is_tcp = endpoint.starts_with(kTcp) && colon > kTcp.size() && !port.empty() && port.size() <= 5 &&
                      port.find_first_not_of("0123456789") == std::string::npos;
  if (is_tcp || (endpoint.starts_with(kIpc) && endpoint.size() > kIpc.size())) return {};
  return Status::invalid(fmt::format("--endpoint: \"{}\" is not an address of a server", endpoint))
      .hint("give tcp://HOST:PORT or ipc://PATH");
}

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

}  // namespace

Result<envs::FleetAnswer> FleetLine::ask(const envs::FleetQuery& query, double seconds,
                                         const Interrupted& interrupted) {
  const SystemClock clock;
  const Time deadline = clock.now() + from_seconds(seconds);
  const uint64_t id = ++last_id_;
  bool sent = false;
  for (;;) {
    if (!sent) {
      wire::Outgoing message(id);
      envs::write_query(query, message.body().initFleetQuery());
      sent = socket_.send("", message).ok();  // fails until there is a connection
    }
    while (auto message = socket_.receive()) {
      if (message->id() != id) continue;  // of a question that was given up
      const auto body = message->body();
      name_ = message->sender();
      epoch_ = message->epoch();
      if (body.isFailed()) return fail(wire::read_failure(body.getFailed()));
      if (!body.isFleetAnswer()) return fail(Status::corrupt(endpoint_ + " answered something else than was asked"));
      return envs::read_answer(body.getFleetAnswer());
    }
    if (interrupted && interrupted()) return fail(Status::cancelled("interrupted"));
    const Duration left = deadline - clock.now();
    if (left <= Duration::zero()) break;
    wire::Socket* const sockets[] = {&socket_};
    wire::wait(sockets, std::min<Duration>(left, sent ? 100ms : 20ms));
  }
  if (!sent) return fail(Status::unavailable(fmt::format("no environment server answers at {}", endpoint_)));
  return fail(
      Status::deadline(fmt::format("the environment server at {} did not answer within {:g} s", endpoint_, seconds))
          .hint("is it a server of this run? those of others do not answer"));
}

Result<FleetClient> FleetClient::open(const FleetTarget& target) {
  TRY(dashboard::check_run_directory(target.run));
  const RunLayout layout(target.run);
  auto endpoints = target.endpoints;
  for (const auto& endpoint : endpoints) TRY(check_endpoint(endpoint));
  if (endpoints.empty()) {
    endpoints.push_back(layout.address("env"));
    const SystemClock clock;
    const auto path = endpoints.back().substr(kIpc.size());
    std::error_code error;
    const Time deadline = clock.now() + from_seconds(target.patience);
    // A run that is on starts a server again that was killed; one that is not has no folder of sockets.
    while (!has_listener(path)) {
      if (!fs::exists(layout.socket_folder(), error) || clock.now() > deadline)
        return fail(Status::unavailable(
            fmt::format("no environment server of {} is alive: {}", target.run, state_of(target.run))));
      ::usleep(20'000);
    }
  }
  FleetClient client(std::make_unique<zmq::context_t>(), target.patience);
  const auto epoch = static_cast<uint64_t>(SystemClock().unix_seconds() * 1e6);
  const wire::Identity identity{
      .sender = fmt::format("operator-{}-{:x}", ::getpid(), epoch), .epoch = epoch, .run = layout.run_id()};
  for (const auto& endpoint : endpoints)
    client.lines_.emplace_back(TRY(wire::Socket::connect(*client.context_, endpoint, identity)), endpoint);
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
