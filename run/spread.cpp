#include "run/spread.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "base/text.h"
#include "wire/address.h"

namespace tandem::run {
namespace {

constexpr int kMostOfAHost = 256;

Status wrong(const std::string& entry, const std::string& what) {
  return Status::invalid(fmt::format("\"{}\": {}", entry.substr(0, 200), what))
      .at("run.topology")
      .hint("give \"tcp://ADDRESS:PORT rollout=2 env=1 relay=1\", with an address of run.hosts or local");
}

Result<Share> read_share(const std::string& entry, const std::vector<std::string>& hosts) {
  std::vector<std::string_view> words;
  for (const auto word : split(entry, ' ')) {
    if (!trim(word).empty()) words.push_back(trim(word));
  }
  if (words.empty()) return fail(wrong(entry, "names no host"));
  Share share{.host = std::string(words[0])};
  if (share.host != kLocalHost && std::find(hosts.begin(), hosts.end(), share.host) == hosts.end())
    return fail(wrong(entry, fmt::format("{} is not in run.hosts", share.host)));
  std::set<std::string_view> said;
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string_view role = words[i].substr(0, equals);
    if (role != "rollout" && role != "env" && role != "relay") {
      return fail(
          wrong(entry, fmt::format("{} cannot be placed: rollout, env and relay can, and coordinator and trainer "
                                   "are where the run is started",
                                   role)));
    }
    if (!said.insert(role).second) return fail(wrong(entry, fmt::format("{} is said twice", role)));
    const std::string_view digits = equals == std::string_view::npos ? "" : words[i].substr(equals + 1);
    int count = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
    if (error != std::errc() || end != digits.data() + digits.size() || count < 0 || count > kMostOfAHost)
      return fail(wrong(entry, fmt::format("{} needs a number from 0 to {}", role, kMostOfAHost)));
    (role == "env" ? share.envs : role == "relay" ? share.relays : share.rollouts) = count;
  }
  return share;
}

}  // namespace

std::string name_of_host(const std::string& address) {
  const auto parsed = wire::Address::parse(address);
  const std::string name = parsed ? parsed->host_and_port() : "";
  return name.empty() ? address : name;
}

Result<std::vector<Share>> spread_of(const RunConfig& config) {
  const auto& hosts = config.run.hosts;
  std::vector<Share> shares;
  if (config.run.topology.empty()) {
    for (const std::string& host : hosts) shares.push_back({.host = host});
    for (int worker = 0; worker < config.rollout.workers; ++worker)
      ++shares[static_cast<size_t>(worker) % shares.size()].rollouts;
    for (int relay = 0; relay < config.run.relays; ++relay) ++shares[static_cast<size_t>(relay) % shares.size()].relays;
    for (Share& share : shares) share.envs = share.rollouts > 0 ? 1 : 0;
    return shares;
  }
  int rollouts = 0, envs = 0, relays = 0;
  for (const std::string& entry : config.run.topology) {
    Share share = TRY(read_share(entry, hosts));
    const bool is_known =
        std::any_of(shares.begin(), shares.end(), [&](const Share& other) { return other.host == share.host; });
    if (is_known) return fail(wrong(entry, "the host is named twice"));
    rollouts += share.rollouts;
    envs += share.envs;
    relays += share.relays;
    shares.push_back(std::move(share));
  }
  if (rollouts != config.rollout.workers) {
    return fail(Status::invalid(
                    fmt::format("it places {} rollouts, and rollout.workers is {}", rollouts, config.rollout.workers))
                    .at("run.topology"));
  }
  if (relays != config.run.relays) {
    return fail(Status::invalid(fmt::format("it places {} relays, and run.relays is {}", relays, config.run.relays))
                    .at("run.topology"));
  }
  if (envs == 0) return fail(Status::invalid("a run needs one environment server at least").at("run.topology"));
  return shares;
}

Status check_topology(const RunConfig& config) {
  TRY(spread_of(config));
  return {};
}

}  // namespace tandem::run
