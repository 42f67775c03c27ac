#include "run/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "run/devices.h"
#include "run/spread.h"

namespace tandem::run {

using wire::Role;

int Topology::count(Role role) const {
  return static_cast<int>(
      std::count_if(places.begin(), places.end(), [&](const Place& place) { return place.peer.role == role; }));
}

int Topology::count(Role role, const std::string& host) const {
  return static_cast<int>(std::count_if(
      places.begin(), places.end(), [&](const Place& place) { return place.peer.role == role && place.host == host; }));
}

const Place* Topology::find(const wire::Peer& peer) const {
  const auto found = std::find_if(places.begin(), places.end(), [&](const Place& place) { return place.peer == peer; });
  return found == places.end() ? nullptr : &*found;
}

std::vector<std::string> Topology::lines() const {
  std::map<std::pair<std::string, std::string>, std::string> processes;
  for (const Place& place : places) {
    std::string& line = processes[{place.host, place.device}];
    line += fmt::format("{}{}{}", line.empty() ? "" : ", ", to_string(place.peer), place.found_at ? " (there)" : "");
  }
  std::vector<std::string> lines;
  for (const auto& [where, names] : processes)
    lines.push_back(fmt::format("{}, {}: {}", where.first, where.second, names));
  return lines;
}

namespace {

// Rank by rank over the hosts, so that neighbours in rank are on different machines.
Status place_on_hosts(const RunConfig& config, const RoleDevices& devices, Topology& topology) {
  const auto shares = TRY(spread_of(config));
  for (int trainer = 0; trainer < config.trainer.ranks; ++trainer)
    topology.places.push_back({.peer = {Role::kTrainer, trainer}, .device = kernels::to_string(devices.trainer)});
  for (const auto& [role, count] : {std::pair(Role::kEnv, &Share::envs), std::pair(Role::kRelay, &Share::relays),
                                    std::pair(Role::kRollout, &Share::rollouts)}) {
    int rank = 0;
    for (int turn = 0, placed = -1; placed != rank; ++turn) {
      placed = rank;
      for (const Share& share : shares) {
        if (turn >= share.*count) continue;
        Place place{.peer = {role, rank}, .host = name_of_host(share.host)};
        if (place.peer.role == Role::kRollout) place.device = kernels::to_string(devices.rollout(rank));
        topology.places.push_back(std::move(place));
        ++rank;
      }
    }
  }
  return {};
}

}  // namespace

Result<Topology> topology_of(const RunConfig& config) {
  Topology topology;
  const RoleDevices devices = TRY(devices_of(config));
  topology.places.push_back({.peer = {Role::kCoordinator, 0}});
  if (!config.run.hosts.empty()) {
    TRY(place_on_hosts(config, devices, topology));
    return topology;
  }
  int rank = 0;
  for (const std::string& host : config.env.hosts) {
    Place place{.peer = {Role::kEnv, rank++}};
    if (host != kLocalHost) {
      place.found_at = TRY(wire::Address::parse(host));
      if (!place.found_at->is_of_this_machine()) place.host = place.found_at->host();
    }
    topology.places.push_back(std::move(place));
  }
  for (int trainer = 0; trainer < config.trainer.ranks; ++trainer)
    topology.places.push_back({.peer = {Role::kTrainer, trainer}, .device = kernels::to_string(devices.trainer)});
  for (int relay = 0; relay < config.run.relays; ++relay) topology.places.push_back({.peer = {Role::kRelay, relay}});
  for (int worker = 0; worker < config.rollout.workers; ++worker)
    topology.places.push_back(
        {.peer = {Role::kRollout, worker}, .device = kernels::to_string(devices.rollout(worker))});
  return topology;
}

Result<wire::Directory> directory_of(const Topology& topology, const Lines& lines) {
  wire::Directory directory;
  for (const Place& place : topology.places) {
    const auto address = place.found_at ? place.found_at : lines.known(place.peer);
    if (address) TRY(directory.put(place.peer, {.address = *address, .host = place.host, .epoch = 0}));
  }
  return directory;
}

}  // namespace tandem::run
