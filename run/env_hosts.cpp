#include "run/env_hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "wire/ask.h"

namespace tandem::run {
namespace {

constexpr std::string_view kIpc = "ipc://", kTcp = "tcp://";
constexpr size_t kMostHosts = 256;
constexpr double kPatience = 10, kPatienceAtEnd = 2;  // seconds for a host to answer

// What each host that is not the run's own server says to a question.
Result<std::vector<std::pair<std::string, Status>>> ask_hosts(const RunConfig& config, const fs::path& run_dir,
                                                              const std::function<void(wire::Body::Builder)>& question,
                                                              double seconds) {
  const RunLayout layout(run_dir);
  const auto addresses = TRY(env_addresses(config, layout));
  zmq::context_t context;
  const auto epoch = wire::new_epoch(SystemClock());
  const wire::Identity identity{
      .sender = fmt::format("{:016x}/supervisor-{:x}", layout.run_id(), epoch), .epoch = epoch, .run = layout.run_id()};
  std::vector<std::pair<std::string, Status>> said;
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (config.env.hosts[i] == kLocalHost) continue;
    const auto& [address, secret] = addresses[i];
    auto socket = TRY(wire::Socket::connect(context, address, identity, secret ? &*secret : nullptr));
    const auto answer = wire::ask(socket, 1, question, seconds);
    said.emplace_back(address, answer ? Status() : answer.error());
  }
  return said;
}

}  // namespace

Status check_env_address(const std::string& address) {
  const auto colon = address.rfind(':');
  const auto port = colon == std::string::npos ? "" : address.substr(colon + 1);
  const bool is_tcp = address.starts_with(kTcp) && colon > kTcp.size() && !port.empty() && port.size() <= 5 &&
                      port.find_first_not_of("0123456789") == std::string::npos;
  if (is_tcp || (address.starts_with(kIpc) && address.size() > kIpc.size())) return {};
  return Status::invalid(fmt::format("\"{}\" is not an address of an environment server", address))
      .hint("give tcp://HOST:PORT or ipc://PATH");
}

Status check_env_hosts(const RunConfig& config) {
  const auto& hosts = config.env.hosts;
  if (hosts.empty()) return Status::invalid("a run needs one at least; \"local\" is its own").at("env.hosts");
  if (hosts.size() > kMostHosts)
    return Status::invalid(fmt::format("there are {}; at most {} can be", hosts.size(), kMostHosts)).at("env.hosts");
  if (std::set(hosts.begin(), hosts.end()).size() != hosts.size())
    return Status::invalid("a host is named twice").at("env.hosts");
  for (const auto& host : hosts) {
    if (host == kLocalHost) continue;
    if (Status status = check_env_address(host); !status)
      return std::move(status).at("env.hosts").hint("give local, tcp://HOST:PORT or ipc://PATH");
  }
  return {};
}

bool has_local_env(const RunConfig& config) {
  return std::find(config.env.hosts.begin(), config.env.hosts.end(), kLocalHost) != config.env.hosts.end();
}

Result<std::vector<rollout::EnvAddress>> env_addresses(const RunConfig& config, const RunLayout& layout) {
  std::optional<wire::Secret> secret;
  if (!config.env.key.empty()) secret = TRY(wire::Secret::read(config.env.key));
  std::vector<rollout::EnvAddress> addresses;
  for (const auto& host : config.env.hosts) {
    if (host == kLocalHost) {
      addresses.push_back({layout.address("env"), std::nullopt});
    } else {
      addresses.push_back({host, host.starts_with(kTcp) ? secret : std::nullopt});
    }
  }
  return addresses;
}

Status greet_env_hosts(const RunConfig& config, const fs::path& run_dir) {
  const auto question = [&](wire::Body::Builder body) {
    body.setOpenRun(fs::absolute(run_dir).lexically_normal().string());
  };
  for (const auto& [address, answer] : TRY(ask_hosts(config, run_dir, question, kPatience))) {
    if (answer) continue;
    Status status = Status::unfit(fmt::format("{}: {}", address, answer.message())).at("env.hosts");
    if (answer.code() != Code::kUnavailable) return status;
    return std::move(status).hint(
        "is `tandem role env --listen` running there, and has it this run's env.key? Strangers get no answer");
  }
  return {};
}

void leave_env_hosts(const RunConfig& config, const fs::path& run_dir) {
  (void)ask_hosts(
      config, run_dir, [](wire::Body::Builder body) { body.setCloseRun(); }, kPatienceAtEnd);
}

}  // namespace tandem::run
