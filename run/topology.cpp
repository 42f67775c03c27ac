#include "run/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "run/devices.h"

namespace tandem::run {

using wire::Role;

int Topology::count(Role role) const {
  return static_cast<int>(
      std::count_if(places.begin(), places.end(), [&](const Place& place) { return place.peer.role == role; }));
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

Result<Topology> topology_of(const RunConfig& config) {
  Topology topology;
  const RoleDevices devices = TRY(devices_of(config));
  topology.places.push_back({.peer = {Role::kCoordinator, 0}});
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
  for (int worker = 0; worker < config.rollout.workers; ++worker)
    topology.places.push_back({.peer = {Role::kRollout, worker},
                               .device = kernels::to_string(devices.rollouts[static_cast<size_t>(worker)])});
  return topology;
}

Result<wire::Directory> directory_of(const Topology& topology, const RunLayout& layout) {
  wire::Directory directory;
  for (const Place& place : topology.places) {
    TRY(directory.put(
        place.peer,
        {.address = place.found_at ? *place.found_at : layout.address(place.peer), .host = place.host, .epoch = 0}));
  }
  return directory;
}

}  // namespace tandem::run
