#include "run/env_hosts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/unique_number.h"
#include "wire/ask.h"

namespace tandem::run {
namespace {

constexpr double kPatience = 10, kPatienceAtEnd = 2;  // seconds for a host to answer

// What each host that is not the run's own server says to a question.
Result<std::vector<std::pair<std::string, Status>>> ask_hosts(const RunConfig& config, const fs::path& run_dir,
                                                              const std::function<void(wire::Body::Builder)>& question,
                                                              double seconds) {
  const RunLayout layout = TRY(RunLayout::open(run_dir));
  const auto secret = TRY(env_secret(config));
  zmq::context_t context;
  // Beside the rollouts of this run, and of other runs, that the host hears.
  const uint64_t life = unique_number();
  const wire::Identity identity{
      .sender = fmt::format("{:016x}/supervisor-{:x}", layout.run_id(), life), .epoch = life, .run = layout.run_id()};
  std::vector<std::pair<std::string, Status>> said;
  for (const Place& place : TRY(topology_of(config)).places) {
    if (!place.found_at) continue;
    const std::string& address = place.found_at->text();
    auto socket = TRY(wire::Socket::connect(context, address, identity, secret ? &*secret : nullptr));
    const auto answer = wire::ask(socket, 1, question, seconds);
    said.emplace_back(address, answer ? Status() : answer.error());
  }
  return said;
}

}  // namespace

bool has_local_env(const RunConfig& config) {
  return std::find(config.env.hosts.begin(), config.env.hosts.end(), kLocalHost) != config.env.hosts.end();
}

Result<std::optional<wire::Secret>> env_secret(const RunConfig& config) {
  std::optional<wire::Secret> secret;
  if (!config.env.key.empty()) secret = TRY(wire::Secret::read(config.env.key));
  return secret;
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
